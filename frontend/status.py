"""Routes about the server itself: is it alive, is it ready, which version, its metrics."""

import importlib.metadata

from aiohttp import web

from pagewire.frontend.openai.errors import unavailable
from pagewire.frontend.state import FRONTEND

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def version_string() -> str:
    """The installed version of Pagewire."""
    return importlib.metadata.version("pagewire")


async def health(http: web.Request) -> web.Response:
    """This process is alive, whatever its engines are."""
    return web.json_response({"status": "ok"})


async def ready(http: web.Request) -> web.Response:
    """An engine can answer; otherwise 503 with the reason."""
    reason = http.app[FRONTEND].not_ready()
    if reason:
        raise unavailable(f"Not ready: {reason}.")
    return web.json_response({"status": "ready"})


async def version(http: web.Request) -> web.Response:
    """The version of this frontend."""
    return web.json_response({"version": version_string()})


async def metrics(http: web.Request) -> web.Response:
    """Everything measured, in Prometheus' text format."""
    return web.Response(body=http.app[FRONTEND].metrics.render(), headers={"Content-Type": METRICS_TYPE})
