"""What happens around every handler: request id, log and metrics, errors as objects, CORS, keys; in this order."""

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from pagewire.frontend.auth import Key
from pagewire.frontend.cors import add_cors_headers, preflight
from pagewire.frontend.openai.errors import ApiError, from_http_status, internal, invalid
from pagewire.frontend.openai.http import ARRIVED, EXTRA_HEADERS, REQUEST_ID, SUMMARY
from pagewire.frontend.state import FRONTEND
from pagewire.protocol.logs import current_request_id

logger = logging.getLogger(__name__)
access_logger = logging.getLogger("pagewire.access")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

KEY: web.RequestKey[Key | None] = web.RequestKey("key", Key)

MAX_REQUEST_ID_CHARS = 128
# No version: aiohttp would name its own and Python's.
SERVER = "pagewire"
# What the log and the metrics call the status of an answer whose client had gone, as nginx does.
CLIENT_GONE = 499
_UNPRINTABLE = re.compile(r"[^!-~]")


@web.middleware
async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give the request an id, and count, time and log it however it ends."""
    request[ARRIVED] = time.perf_counter()
    request[REQUEST_ID] = request_id(request.headers.get("X-Request-Id"))
    request[EXTRA_HEADERS] = {"X-Request-Id": request[REQUEST_ID]}
    current_request_id.set(request[REQUEST_ID])
    status = CLIENT_GONE
    try:
        response = await handler(request)
        status = response.status
        return response
    finally:
        _record(request, status, time.perf_counter() - request[ARRIVED])


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Make every error an OpenAI error object."""
    try:
        return await handler(request)
    except Exception as fault:
        return error_of(fault, request).response()


def error_of(fault: Exception, request: web.Request) -> ApiError:
    """What a client is told of whatever a handler raised; raises it again if that is not for clients."""
    match fault:
        case ApiError():
            return fault
        case web.HTTPException() if fault.status >= 400:
            headers = {"Allow": fault.headers["Allow"]} if "Allow" in fault.headers else {}
            return from_http_status(fault.status, request.method, request.path, headers)
        case web.RequestPayloadError():
            # A coding that the body does not keep to, or less of it than was announced.
            return invalid("The request body cannot be read: it is not as its headers say.", code=None)
        case web.HTTPException() | ConnectionError():
            # No error, or a client that has gone; aiohttp closes what is left of the connection.
            raise fault
    logger.error("a request failed", exc_info=fault)
    return internal("The server failed to answer this request.")


@web.middleware
async def answer_preflight(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer OPTIONS on every route that exists, before keys are asked for: browsers send none with it."""
    if request.method == "OPTIONS":
        fault = request.match_info.http_exception
        if isinstance(fault, web.HTTPMethodNotAllowed):
            return preflight(request, request.app[FRONTEND].config, fault.allowed_methods)
    return await handler(request)


def key_digest(request: web.Request) -> bytes | None:
    """Whose request it is: the digest of its key, or None where no key is needed."""
    key = request.get(KEY)
    return key.digest if key else None


def check_keys(open_handlers: frozenset[Handler]) -> Middleware:
    """Make the middleware that asks for a key on every route but those of ``open_handlers``.

    It goes by the handler that the router found, never by the path: whatever a path looks like, what it leads to is
    what is protected. Routes that do not exist are, too.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        keys = request.app[FRONTEND].keys
        if keys.required and request.match_info.handler not in open_handlers:
            # Anthropic's clients have a header of their own for the key.
            anthropic = f"Bearer {request.headers.get('x-api-key', '')}"
            request[KEY] = keys.find(request.headers.get("Authorization")) or keys.find(anthropic)
            if request[KEY] is None:
                raise ApiError(
                    401,
                    "A valid API key is required (Authorization: Bearer KEY).",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        return await handler(request)

    return check


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Put on every answer, streams included, what the handlers and CORS have for it; a signal of aiohttp."""
    response.headers["Server"] = SERVER
    response.headers.update(request.get(EXTRA_HEADERS, {}))
    add_cors_headers(request, response, request.app[FRONTEND].config)


def request_id(sent: str | None) -> str:
    """The client's request id, made safe for logs and headers, or a new one."""
    return _UNPRINTABLE.sub("", sent or "")[:MAX_REQUEST_ID_CHARS] or uuid.uuid4().hex


def _record(request: web.Request, status: int, seconds: float) -> None:
    frontend = request.app[FRONTEND]
    resource = request.match_info.route.resource
    # Not the path: whoever asks for many that do not exist must not make as many series.
    route = resource.canonical if resource else "unknown"
    frontend.metrics.http_requests.labels(request.method if resource else "unknown", route, str(status)).inc()
    frontend.metrics.http_duration.labels(route).observe(seconds)
    if status == CLIENT_GONE:
        frontend.metrics.disconnects.inc()
    if frontend.config.access_log and request.path not in frontend.config.access_log_exclude:
        # The path as it was sent: decoded, it might hold a line break.
        line = f'{request.remote or "-"} "{request.method} {request.rel_url.raw_path}" {status} {seconds:.3f}s'
        key, summary = request.get(KEY), request.get(SUMMARY)
        access_logger.info("%s%s%s", line, f" key={key.name}" if key else "", f" {summary}" if summary else "")
