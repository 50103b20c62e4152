"""Errors as OpenAI's clients know them: one object, one table from our error kinds to status and type."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from aiohttp import web

from pagewire.protocol.messages import Error

# Seconds after which a client may try again; overload clears quickly, a missing engine less so.
RETRY_OVERLOADED_S = 1
RETRY_UNAVAILABLE_S = 5
# OpenAI's clients try again after any 5xx unless told otherwise.
_NO_RETRY = {"x-should-retry": "false"}

_encoder = msgspec.json.Encoder()


class ApiError(Exception):
    """An answer that is an error: HTTP status, OpenAI's four fields, and extra headers."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        """``kind`` is OpenAI's ``error.type``; ``param`` the path of the field at fault."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """The error object as JSON."""
        fields = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return _encoder.encode({"error": fields})

    def response(self) -> web.Response:
        """The whole HTTP answer."""
        return web.Response(status=self.status, body=self.body(), content_type="application/json", headers=self.headers)


def invalid(message: str, param: str | None = None, code: str | None = "invalid_value") -> ApiError:
    """A request that can never work as it stands: 400."""
    return ApiError(400, message, param=param, code=code)


def unsupported(message: str, param: str) -> ApiError:
    """A field that asks for something this server does not do: 400 naming it."""
    return ApiError(400, message, param=param, code="unsupported_parameter")


def model_not_found(name: str) -> ApiError:
    """The request names a model that no engine serves: 404."""
    return ApiError(404, f"The model '{name}' does not exist.", param="model", code="model_not_found")


def overloaded(message: str) -> ApiError:
    """Too many requests for now: 429."""
    return ApiError(
        429,
        message,
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        headers={"Retry-After": str(RETRY_OVERLOADED_S)},
    )


def unavailable(message: str) -> ApiError:
    """Nobody can answer for now: 503."""
    return ApiError(503, message, kind="server_error", headers={"Retry-After": str(RETRY_UNAVAILABLE_S)})


def internal(message: str) -> ApiError:
    """We failed, and the same request would fail again: 500."""
    return ApiError(500, message, kind="server_error", headers=_NO_RETRY)


def timed_out(seconds: float) -> ApiError:
    """The time limit of the request passed, as it would again: 504."""
    message = f"The request took longer than its limit of {seconds:g} s."
    return ApiError(504, message, kind="server_error", code="timeout", headers=_NO_RETRY)


@contextmanager
def worded(words: Mapping[str, str]) -> Iterator[None]:
    """Let the ApiErrors of a block name fields as another API does, see ``reworded``.

    All fields are in quotes then: a key with one is found where a field begins only, not among a schema's properties.
    """
    try:
        yield
    except ApiError as error:
        error.message = reworded(error.message, words)
        error.param = reworded(f"'{error.param}'", words)[1:-1] if error.param else error.param
        raise


def reworded(text: str, words: Mapping[str, str]) -> str:
    """``text`` with each key replaced by its value, in order."""
    for old, new in words.items():
        text = text.replace(old, new)
    return text


def from_engine(error: Error) -> ApiError:
    """What an engine's refusal or failure is to a client."""
    match error.code:
        case "invalid":
            return invalid(error.message, param=error.param)
        case "context_length_exceeded":
            return invalid(error.message, param=error.param, code="context_length_exceeded")
        case "overloaded":
            return overloaded(error.message)
        case "draining":
            return unavailable(error.message)
        case "internal":
            return unavailable(error.message) if error.retryable else internal(error.message)


@dataclass(frozen=True, slots=True)
class HttpFault:
    """How one of aiohttp's own errors is worded for our clients."""

    message: str
    kind: str = "invalid_request_error"


_HTTP_FAULTS = {
    400: HttpFault("The HTTP request is malformed."),
    404: HttpFault("There is no such route: {method} {path}."),
    405: HttpFault("The route {path} does not take the method {method}."),
    408: HttpFault("The request did not arrive in time."),
    413: HttpFault("The request body is larger than this server accepts."),
    415: HttpFault("The request body must be JSON (Content-Type: application/json), plain or in gzip or deflate."),
    417: HttpFault("The only expectation that this server knows is 'Expect: 100-continue'."),
    431: HttpFault("The request's headers are larger than this server accepts."),
}


def from_http_status(status: int, method: str, path: str, headers: Mapping[str, str] | None = None) -> ApiError:
    """What a fault found by the HTTP layer itself is to a client."""
    fault = _HTTP_FAULTS.get(status)
    if fault is None:
        fault = HttpFault(f"HTTP error {status}.", "server_error" if status >= 500 else "invalid_request_error")
    message = fault.message.replace("{method}", method[:16]).replace("{path}", path[:200])
    return ApiError(status, message, kind=fault.kind, headers=headers)
