"""Errors as Anthropic's clients know them, on Anthropic's routes only."""

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from pagewire.frontend.middlewares import error_of
from pagewire.frontend.openai.errors import ApiError
from pagewire.frontend.openai.http import EXTRA_HEADERS, REQUEST_ID

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}

_encode = msgspec.json.Encoder().encode


def error_body(error: ApiError, request_id: str) -> bytes:
    """The error object as JSON."""
    kind = _TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    return _encode({"type": "error", "error": {"type": kind, "message": error.message}, "request_id": request_id})


def answer_in_anthropic_shape(prefix: str) -> Middleware:
    """Make the middleware that gives errors of Anthropic's routes their shape, those of other middlewares included."""
    route = f"{prefix}/v1/messages"

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path != route and not request.path.startswith(f"{route}/"):
            return await handler(request)
        request[EXTRA_HEADERS]["request-id"] = request[REQUEST_ID]
        try:
            return await handler(request)
        except Exception as fault:
            error = error_of(fault, request)
        body = error_body(error, request[REQUEST_ID])
        return web.Response(status=error.status, body=body, content_type="application/json", headers=error.headers)

    return answer
