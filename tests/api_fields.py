"""Writes the tables of docs/api.md: what becomes of every field of OpenAI's requests, and of vLLM's extensions.

    python -m tests.api_fields

OpenAI's fields are those of the installed ``openai`` package; ours come from the structs and tables that requests are
parsed with.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from openai.types import completion_create_params, embedding_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import response_create_params

from pagewire.frontend.openai import fields, schema
from pagewire.frontend.openai.fields import FieldRules, Refused
from pagewire.frontend.openapi.descriptions import DESCRIPTIONS
from pagewire.frontend.responses import schema as responses_schema

DOCUMENT = Path(__file__).parent.parent / "docs" / "api.md"
_TABLE = re.compile(
    r"(?P<head><!-- fields of (?P<path>\S+): made by tests/api_fields.py -->\n).*?(?P<tail><!-- end -->)", re.DOTALL
)

# What vLLM 0.33 takes beyond OpenAI, by endpoint.
VLLM_SAMPLING = (
    *("allowed_token_ids", "bad_words", "cache_salt", "ignore_eos", "include_stop_str_in_output", "kv_transfer_params"),
    *("length_penalty", "logits_processors", "min_p", "min_tokens", "priority", "prompt_logprobs"),
    *("repetition_detection", "repetition_penalty", "request_id", "return_token_ids", "return_tokens_as_token_ids"),
    *("skip_special_tokens", "spaces_between_special_tokens", "stop_token_ids", "stream_interval"),
    *("structured_outputs", "thinking_token_budget", "top_k", "truncate_prompt_tokens", "truncation_side"),
    *("use_beam_search", "vllm_xargs"),
)
VLLM_CHAT = (
    *("add_generation_prompt", "add_special_tokens", "chat_template", "chat_template_kwargs", "continue_final_message"),
    *("documents", "echo", "include_reasoning", "media_io_kwargs", "mm_processor_kwargs", "return_prompt_text"),
)
VLLM_COMPLETIONS = ("add_special_tokens", "prompt_embeds", "response_format")
# Fields that the struct of responses shares with those of the other endpoints, and that are refused there.
REFUSED_BY_RESPONSES = {
    "max_tokens": "it here; use `max_output_tokens`",
    "n": "more than one answer. 1 passes",
    "prompt_logprobs": "log-probabilities of the prompt",
    "response_format": "it here; use `text.format`",
}
VLLM_EMBEDDINGS = ("add_special_tokens", "cache_salt", "priority", "request_id", "truncate_prompt_tokens")


@dataclass(frozen=True)
class Endpoint:
    """Whose fields there are, and how we treat them."""

    path: str
    openai: Collection[str]
    vllm: Collection[str]
    request: type[msgspec.Struct]
    rules: FieldRules
    refused_later: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """What becomes of one field."""

    field: str
    origin: str
    outcome: str
    note: str


def endpoints() -> list[Endpoint]:
    """The four endpoints of OpenAI's that are served."""
    stream = {"stream"}
    return [
        Endpoint(
            "/v1/chat/completions",
            {*chat_create_params.CompletionCreateParamsBase.__annotations__} | stream,
            {*VLLM_SAMPLING, *VLLM_CHAT},
            schema.ChatRequest,
            fields.RULES,
        ),
        Endpoint(
            "/v1/completions",
            {*completion_create_params.CompletionCreateParamsBase.__annotations__} | stream,
            {*VLLM_SAMPLING, *VLLM_COMPLETIONS},
            schema.CompletionRequest,
            fields.RULES,
        ),
        Endpoint(
            "/v1/responses",
            {*response_create_params.ResponseCreateParamsBase.__annotations__} | stream,
            {*VLLM_SAMPLING} - {"return_token_ids", "return_tokens_as_token_ids", "truncate_prompt_tokens"},
            responses_schema.ResponsesRequest,
            responses_schema.RULES,
            REFUSED_BY_RESPONSES,
        ),
        Endpoint(
            "/v1/embeddings",
            {*embedding_create_params.EmbeddingCreateParams.__annotations__},
            VLLM_EMBEDDINGS,
            schema.EmbeddingRequest,
            fields.RULES,
        ),
    ]


def rows(endpoint: Endpoint) -> Iterator[Row]:
    """OpenAI's fields, vLLM's, then those that only we have; raises LookupError for one that nothing is said about."""
    own = {entry.encode_name for entry in msgspec.structs.fields(endpoint.request)}
    origins: list[tuple[str, Iterable[str]]] = [
        ("OpenAI", endpoint.openai),
        ("vLLM", {*endpoint.vllm} - {*endpoint.openai}),
        ("Pagewire", own - {*endpoint.openai} - {*endpoint.vllm}),
    ]
    for origin, names in origins:
        for name in sorted(names):
            outcome, note = _outcome(name, own, endpoint)
            yield Row(name, origin, outcome, note)


def table(endpoint: Endpoint) -> str:
    """One endpoint's fields in Markdown."""
    lines = ["| field | from | | |", "| --- | --- | --- | --- |"]
    lines += [f"| `{row.field}` | {row.origin} | {row.outcome} | {row.note} |" for row in rows(endpoint)]
    return "\n".join(lines) + "\n"


def updated(document: str) -> str:
    """The document with its tables made anew."""
    tables = {endpoint.path: table(endpoint) for endpoint in endpoints()}
    return _TABLE.sub(lambda match: match["head"] + tables[match["path"]] + match["tail"], document)


def _outcome(name: str, own: Collection[str], endpoint: Endpoint) -> tuple[str, str]:
    rules = endpoint.rules
    if name in endpoint.refused_later:
        return "refused", f"Not supported: {endpoint.refused_later[name]}."
    if name in own:
        return "works", DESCRIPTIONS[name]
    if name in rules.refused:
        return "refused", _refusal(rules.refused[name])
    if name in rules.ignored:
        reason = rules.ignored[name]
        return "ignored", f"{reason[0].upper()}{reason[1:]}."
    raise LookupError(
        f"nothing is said about '{name}': add it to a struct or to the tables of refused and ignored fields"
    )


def _refusal(refused: Refused) -> str:
    passes = refused.asks_nothing is not Refused("").asks_nothing
    return f"Not supported: {refused.feature}." + (" Values that do not ask for it pass." if passes else "")


def main() -> None:
    """Rewrite the document."""
    DOCUMENT.write_text(updated(DOCUMENT.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
