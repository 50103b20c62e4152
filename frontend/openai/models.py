"""``GET /v1/models`` and ``GET /v1/models/{id}``."""

from typing import Any

from aiohttp import web

from pagewire.frontend.openai.sse import encode
from pagewire.frontend.pool import EngineModel
from pagewire.frontend.state import FRONTEND


async def list_models(http: web.Request) -> web.Response:
    """All names that requests may use; none while no engine is ready."""
    names = http.app[FRONTEND].catalog.names()
    return _json({"object": "list", "data": [_describe(name, entry) for name, entry in names.items()]})


async def retrieve_model(http: web.Request) -> web.Response:
    """One model; names may contain slashes."""
    name = http.match_info["name"]
    return _json(_describe(name, http.app[FRONTEND].catalog.entry(name)))


def _describe(name: str, entry: EngineModel) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": entry.model.created,
        "owned_by": "pagewire",
        "root": entry.model.name,
        "parent": None,
        "max_model_len": entry.limits.max_model_len,
    }


def _json(value: dict[str, Any]) -> web.Response:
    return web.Response(body=encode(value), content_type="application/json")
