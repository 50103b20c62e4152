"""Cross-origin requests: which web pages may call this server from a browser."""

from collections.abc import Iterable

from aiohttp import web

from pagewire.frontend.config import FrontendConfig

# Seconds that a browser may remember a preflight's answer.
_MAX_AGE_S = 600
_EXPOSED = "X-Request-Id, X-Ignored-Params, Retry-After"


def preflight(http: web.Request, config: FrontendConfig, methods: Iterable[str]) -> web.Response:
    """Answer OPTIONS on a route that takes ``methods``; without an allowed origin nothing but that is said."""
    offered = ", ".join(sorted({*methods, "OPTIONS"}))
    response = web.Response(status=204, headers={"Allow": offered})
    if _allowed_origin(http, config) and "Access-Control-Request-Method" in http.headers:
        asked_headers = http.headers.get("Access-Control-Request-Headers", "")
        response.headers["Access-Control-Allow-Methods"] = _listed(config.allowed_methods, offered)
        response.headers["Access-Control-Allow-Headers"] = _listed(config.allowed_headers, asked_headers)
        response.headers["Access-Control-Max-Age"] = str(_MAX_AGE_S)
    return response


def add_cors_headers(http: web.Request, response: web.StreamResponse, config: FrontendConfig) -> None:
    """Tell the browser that the page may read this answer, if its origin is allowed."""
    if not config.allowed_origins:
        return
    response.headers["Vary"] = "Origin"
    origin = _allowed_origin(http, config)
    if origin:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = _EXPOSED
        if config.allow_credentials:
            response.headers["Access-Control-Allow-Credentials"] = "true"


def _allowed_origin(http: web.Request, config: FrontendConfig) -> str | None:
    origin = http.headers.get("Origin")
    if origin is None:
        return None
    if origin in config.allowed_origins:
        return origin
    if "*" in config.allowed_origins:
        # Browsers refuse the wildcard together with credentials.
        return origin if config.allow_credentials else "*"
    return None


def _listed(allowed: tuple[str, ...], asked: str) -> str:
    """What is allowed, by name: the wildcard does not cover Authorization, and not everything understands it."""
    return asked if "*" in allowed else ", ".join(allowed)
