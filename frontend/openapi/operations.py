"""Every operation of the HTTP interface: what it is for, what it takes and gives. A test holds it to the routes."""

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from pagewire.frontend.anthropic.schema import CountTokensRequest, MessagesRequest
from pagewire.frontend.openai.schema import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    TokenizeRequest,
)
from pagewire.frontend.openapi import answers
from pagewire.frontend.responses.schema import ResponsesRequest

Group = Literal["Generation", "Embeddings", "Responses", "Messages", "Models", "Tokens", "Server"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. ``answer`` is a struct, or the media type of an answer that is no JSON."""

    method: Literal["get", "post", "delete"]
    path: str
    group: Group
    summary: str
    answer: type[Struct] | str
    request: type[Struct] | None = None
    streams: bool = False
    # Query parameters: name, JSON type, what it means.
    query: tuple[tuple[str, str, str], ...] = ()

    @property
    def parameters(self) -> list[str]:
        """The names in braces of the path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @property
    def is_anthropic(self) -> bool:
        """Whether errors have Anthropic's shape."""
        return self.path.startswith("/v1/messages")


_PAGE = (
    ("limit", "integer", "Items per page, 1 to 100."),
    ("order", "string", "asc or desc."),
    ("after", "string", "Id of the item before the page."),
)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "post",
        "/v1/chat/completions",
        "Generation",
        "Answer a conversation",
        answers.ChatCompletion,
        ChatRequest,
        streams=True,
    ),
    Operation(
        "post",
        "/v1/completions",
        "Generation",
        "Continue prompts as they are",
        answers.TextCompletion,
        CompletionRequest,
        streams=True,
    ),
    Operation(
        "post",
        "/v1/chat/completions/render",
        "Generation",
        "Show the prompt of a conversation without answering it",
        answers.RenderedPrompts,
        ChatRequest,
    ),
    Operation(
        "post",
        "/v1/completions/render",
        "Generation",
        "Show prompts as the model would get them",
        answers.RenderedPrompts,
        CompletionRequest,
    ),
    Operation("post", "/v1/embeddings", "Embeddings", "Embed texts", answers.EmbeddingList, EmbeddingRequest),
    Operation(
        "post", "/v1/responses", "Responses", "Create a response", answers.Response, ResponsesRequest, streams=True
    ),
    Operation("get", "/v1/responses/{id}", "Responses", "Retrieve a stored response", answers.Response),
    Operation("delete", "/v1/responses/{id}", "Responses", "Delete a stored response", answers.DeletedResponse),
    Operation("post", "/v1/responses/{id}/cancel", "Responses", "Cancel a response", answers.Response),
    Operation(
        "get",
        "/v1/responses/{id}/input_items",
        "Responses",
        "List what a response was made from",
        answers.InputItems,
        query=_PAGE,
    ),
    Operation("post", "/v1/messages", "Messages", "Create a message", answers.Message, MessagesRequest, streams=True),
    Operation(
        "post",
        "/v1/messages/count_tokens",
        "Messages",
        "Count the tokens of a prompt",
        answers.InputTokens,
        CountTokensRequest,
    ),
    Operation("get", "/v1/models", "Models", "List the models", answers.ModelList),
    Operation("get", "/v1/models/{name}", "Models", "Describe a model; names may contain slashes", answers.Model),
    Operation("post", "/tokenize", "Tokens", "From text to token ids", answers.Tokens, TokenizeRequest),
    Operation("post", "/detokenize", "Tokens", "From token ids to text", answers.Detokenized, DetokenizeRequest),
    Operation(
        "get",
        "/tokenizer_info",
        "Tokens",
        "Special tokens and chat template",
        answers.TokenizerInfo,
        query=(("model", "string", "The first model if left out."),),
    ),
    Operation("get", "/health", "Server", "Is the server alive? Also /v1/health, /ping and /livez", answers.Status),
    Operation("get", "/ready", "Server", "Can an engine answer? Also /readyz", answers.Status),
    Operation("get", "/version", "Server", "The server's version", answers.Version),
    Operation("get", "/metrics", "Server", "Prometheus metrics", "text/plain"),
    Operation("get", "/openapi.json", "Server", "This description", "application/json"),
    Operation("get", "/docs", "Server", "This description for people", "text/html"),
)
