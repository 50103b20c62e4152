"""Request fields without an effect here, and why: some are refused, some are ignored.

A refused field asks for something that would change the answer, so pretending would be a lie; values that ask for
nothing pass. An ignored field has no meaning on one's own machine; it is named in ``X-Ignored-Params`` (as unknown
fields are), or refused under ``--strict-params``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Body = Mapping[str, Any]
Parts = Mapping[str, frozenset[str]]


def _never(value: Any, body: Body) -> bool:
    return False


def _empty(value: Any, body: Body) -> bool:
    return value in ([], {}, "")


def _false(value: Any, body: Body) -> bool:
    return value is False


def _true(value: Any, body: Body) -> bool:
    return value is True


def _one_of(*harmless: Any) -> Callable[[Any, Body], bool]:
    return lambda value, body: any(value == known and type(value) is type(known) for known in harmless)


def _functions_unused(value: Any, body: Body) -> bool:
    return value == [] or (isinstance(value, list) and body.get("function_call") == "none")


def _no_choice(value: Any, body: Body) -> bool:
    # "auto" is the default; with functions present it is they that are refused.
    return value in ("none", "auto")


def _same_as_n(value: Any, body: Body) -> bool:
    n = body.get("n")
    return type(value) is int and value == (1 if n is None else n)


@dataclass(frozen=True, slots=True)
class Refused:
    """A feature that is missing. ``asks_nothing(value, body)`` is true of values that do not ask for it."""

    feature: str
    asks_nothing: Callable[[Any, Body], bool] = _never


REFUSED: Mapping[str, Refused] = {
    "functions": Refused("function calling", _functions_unused),
    "function_call": Refused("function calling", _no_choice),
    "guided_json": Refused("constrained output"),
    "guided_regex": Refused("constrained output", _empty),
    "guided_choice": Refused("constrained output", _empty),
    "guided_grammar": Refused("constrained output", _empty),
    "json_schema": Refused("constrained output"),
    "grammar": Refused("constrained output", _empty),
    "regex": Refused("constrained output", _empty),
    "ebnf": Refused("constrained output", _empty),
    "stop_regex": Refused("stopping at a regular expression", _empty),
    "audio": Refused("audio output"),
    "modalities": Refused("output other than text", _one_of(["text"])),
    "moderation": Refused("moderation"),
    "prediction": Refused("predicted output"),
    "web_search_options": Refused("web search"),
    "suffix": Refused("filling in the middle", _empty),
    "best_of": Refused("a best_of other than n", _same_as_n),
    "use_beam_search": Refused("beam search", _false),
    "length_penalty": Refused("beam search", _one_of(1, 1.0)),
    "early_stopping": Refused("beam search", _false),
    "repetition_detection": Refused("ending an answer that repeats itself"),
    "detokenize": Refused("answers without text", _true),
    "include_reasoning": Refused("hiding the reasoning", _true),
    "return_prompt_text": Refused("the prompt's text in the answer (it is at .../render)", _false),
    "kv_transfer_params": Refused("moving KV caches between engines", _empty),
    "vllm_xargs": Refused("arguments for plug-ins", _empty),
    "prompt_embeds": Refused("prompts as embeddings", _empty),
    "logprobs_mode": Refused("log-probabilities other than the model's own", _one_of("raw_logprobs")),
    "truncation_side": Refused("cutting prompts at their end", _one_of("left")),
    "logits_processors": Refused("custom logits processors", _empty),
    "chat_template": Refused("a chat template in the request (start the server with --chat-template)", _empty),
    "thinking_token_budget": Refused("a token budget for reasoning"),
    "lora_path": Refused("adapters", _empty),
}

IGNORED: Mapping[str, str] = {
    "user": "there are no accounts",
    "safety_identifier": "there are no accounts",
    "metadata": "answers are not stored",
    "store": "answers are not stored",
    "service_tier": "there is one tier",
    "verbosity": "the model has no such control",
    "request_id": "the X-Request-Id header names requests",
    "stream_interval": "the server decides it (--stream-interval)",
    "mm_processor_kwargs": "inputs are text",
    "media_io_kwargs": "inputs are text",
    "spaces_between_special_tokens": "tokens are joined as the tokenizer does it",
    "prompt_cache_key": "prefixes are cached without a key",
    "prompt_cache_options": "prefixes are cached without options",
    "prompt_cache_retention": "prefixes are cached while there is room",
    "stream_options.include_obfuscation": "nothing is obfuscated",
}

# Of fields that are objects, or lists of them: the parts that have an effect.
PARTS: Parts = {
    "stream_options": frozenset({"include_usage", "continuous_usage_stats"}),
    # The latter are those of a structural tag, which the engine reads as a whole.
    "response_format": frozenset({"type", "json_schema", "format", "structures", "triggers"}),
    "response_format.json_schema": frozenset({"name", "description", "schema", "strict"}),
    "tools": frozenset({"type", "function"}),
    "tools.function": frozenset({"name", "description", "parameters", "strict"}),
    "tool_choice": frozenset({"type", "function", "allowed_tools"}),
    "tool_choice.function": frozenset({"name"}),
    "tool_choice.allowed_tools": frozenset({"mode", "tools"}),
}


@dataclass(frozen=True, slots=True)
class FieldRules:
    """What an endpoint refuses, why it ignores what it ignores, and by the path of a field, which parts of it count."""

    refused: Mapping[str, Refused]
    ignored: Mapping[str, str]
    parts: Parts


RULES = FieldRules(REFUSED, IGNORED, PARTS)
