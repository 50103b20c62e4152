"""The shapes of answers, for the OpenAPI document; the answers themselves are built elsewhere, by hand and fast."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Object = dict[str, Any]
NonNegative = Annotated[int, Meta(ge=0)]


class ErrorFields(Struct):
    """What went wrong. ``param`` is the path of the field at fault."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(Struct):
    """Every error, whatever its status."""

    error: ErrorFields


class MessagesErrorFields(Struct):
    """What went wrong."""

    type: str
    message: str


class MessagesError(Struct):
    """Every error on Anthropic's routes."""

    type: Literal["error"]
    error: MessagesErrorFields
    request_id: str


class Usage(Struct):
    """Token counts."""

    prompt_tokens: NonNegative
    completion_tokens: NonNegative
    total_tokens: NonNegative
    prompt_tokens_details: Object | UnsetType = UNSET
    completion_tokens_details: Object | UnsetType = UNSET


class ChatMessage(Struct):
    """The answer."""

    role: str
    content: str | None
    refusal: str | None
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[Object] | UnsetType = UNSET


class ChatChoice(Struct):
    """One answer to a conversation."""

    index: NonNegative
    message: ChatMessage
    logprobs: Object | None
    finish_reason: Literal["stop", "length", "tool_calls"]
    stop_reason: str | int | None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(Struct):
    """A plain answer of chat. Streams are ``chat.completion.chunk`` events that end with ``[DONE]``."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: list[Object | None] | UnsetType = UNSET


class CompletionChoice(Struct):
    """One continuation of a prompt."""

    index: NonNegative
    text: str
    logprobs: Object | None
    finish_reason: Literal["stop", "length"]
    stop_reason: str | int | None
    prompt_token_ids: list[int] | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: list[Object | None] | UnsetType = UNSET


class TextCompletion(Struct):
    """A plain answer of completions. Streams are events of the same shape that end with ``[DONE]``."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class Embedding(Struct):
    """One vector of length 1: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: NonNegative
    embedding: list[float] | str


class EmbeddingUsage(Struct):
    """Token counts."""

    prompt_tokens: NonNegative
    total_tokens: NonNegative


class EmbeddingList(Struct):
    """One embedding per input."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class RenderedPrompt(Struct):
    """What the model would get."""

    object: Literal["prompt"]
    index: NonNegative
    prompt: str
    prompt_token_ids: list[int]
    count: NonNegative


class RenderedPrompts(Struct):
    """The prompts of a request."""

    object: Literal["list"]
    model: str
    max_model_len: int
    data: list[RenderedPrompt]


class Model(Struct):
    """A name that requests may use; ``root`` is the model's own name."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int


class ModelList(Struct):
    """All names that requests may use."""

    object: Literal["list"]
    data: list[Model]


class Tokens(Struct):
    """Token ids of a prompt."""

    count: NonNegative
    max_model_len: int
    tokens: list[int]


class Detokenized(Struct):
    """The text of token ids."""

    prompt: str


class TokenizerInfo(Struct):
    """What transformers' ``tokenizer_config.json`` calls so, and every other special token that has a name."""

    tokenizer_class: str
    model_max_length: int
    chat_template: str | None
    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None


class Response(Struct):
    """A response as OpenAI's reference describes it. Streams are typed events."""

    id: str
    object: Literal["response"]
    created_at: float
    status: str
    model: str
    output: list[Object]


class DeletedResponse(Struct):
    """A response that is no longer stored."""

    id: str
    object: str
    deleted: bool


class InputItems(Struct):
    """A page of the items that a response was made from."""

    object: Literal["list"]
    data: list[Object]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Message(Struct):
    """A message as Anthropic's reference describes it. Streams are typed events."""

    id: str
    type: Literal["message"]
    role: str
    model: str
    content: list[Object]
    stop_reason: str | None
    stop_sequence: str | None
    usage: Object


class InputTokens(Struct):
    """How long a prompt would be."""

    input_tokens: NonNegative


class Status(Struct):
    """A sign of life."""

    status: str


class Version(Struct):
    """The version of this frontend."""

    version: str
