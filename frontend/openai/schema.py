"""The bodies of our endpoints: every field that has an effect, its type, its fixed range and its default.

Fields are given values only when the client sent something other than null; limits that depend on the server or the
model are checked in ``params``. Fields that are refused or ignored are in ``fields``.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Fraction = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**31 - 1)]
# Of a prompt's last tokens to keep; -1 is as many as fit.
Truncation = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_ONE_PROMPT = [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]
_PROMPTS = [{"type": "array", "items": form, "minItems": 1} for form in _ONE_PROMPT]
# Told apart in ``prompts``: msgspec knows no such union.
Prompts = Annotated[Any, Meta(extra_json_schema={"anyOf": _ONE_PROMPT + _PROMPTS})]
# Below a hundredth, float32 logits divided by the penalty can overflow.
RepetitionPenalty = Annotated[float, Meta(ge=0.01, le=100)]


class StreamOptions(Struct, kw_only=True, frozen=True):
    """What else a stream carries."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class SamplingFields(Struct, kw_only=True, frozen=True):
    """What chat and completions have in common: the model, how to sample, how to answer."""

    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Positive = 1
    max_tokens: Count | None = None
    min_tokens: Count = 0
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Fraction | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: RepetitionPenalty | None = None
    seed: Int64 | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] = {}
    stop: str | list[str] = []
    stop_token_ids: list[int] = []
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    prompt_logprobs: Count | None = None
    priority: Int32 = 0
    cache_salt: Annotated[str, Meta(max_length=1024)] = ""
    timeout: Annotated[float, Meta(gt=0)] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = []


class ChoicesFields(SamplingFields, kw_only=True, frozen=True):
    """What the two endpoints that answer with a list of choices have in common."""

    truncate_prompt_tokens: Truncation | None = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False


class ChatRequest(ChoicesFields, kw_only=True, frozen=True):
    """``POST /v1/chat/completions``. Messages are free objects: their further fields belong to the template."""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    max_completion_tokens: Positive | None = None
    logprobs: bool = False
    top_logprobs: Count = 0
    echo: bool = False
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template_kwargs: dict[str, Any] = {}
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: str | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool = True


class CompletionRequest(ChoicesFields, kw_only=True, frozen=True):
    """``POST /v1/completions``. ``prompt`` is a string, a list of strings, token ids, or a list of those."""

    prompt: Prompts
    suffix: str | None = None
    best_of: Count | None = None
    logprobs: Count | None = None
    echo: bool = False
    add_special_tokens: bool = True


class EmbeddingRequest(Struct, kw_only=True, frozen=True):
    """``POST /v1/embeddings``. ``input`` is a string, a list of strings, token ids, or a list of those."""

    model: str | None = None
    input: Prompts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Positive | None = None
    truncate_prompt_tokens: Truncation | None = None
    add_special_tokens: bool = True
    priority: Int32 = 0
    cache_salt: Annotated[str, Meta(max_length=1024)] = ""


class TokenizeRequest(Struct, kw_only=True, frozen=True):
    """``POST /tokenize``: the ids of a prompt as completions would make them, or of messages as chat would."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = {}
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: str | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None


class DetokenizeRequest(Struct, kw_only=True, frozen=True):
    """``POST /detokenize``: the text of some ids."""

    model: str | None = None
    tokens: list[int]
