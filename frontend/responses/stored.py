"""Stored responses: retrieve and delete them, list what they were made from."""

from typing import Any, NoReturn

from aiohttp import web

from pagewire.frontend.middlewares import key_digest
from pagewire.frontend.openai.errors import ApiError, invalid, unsupported
from pagewire.frontend.openai.parse import show
from pagewire.frontend.openai.sse import encode
from pagewire.frontend.responses.store import ResponseStore, StoredResponse

RESPONSES: web.AppKey[ResponseStore] = web.AppKey("responses", ResponseStore)

_DEFAULT_PAGE = 20
_MAX_PAGE = 100


async def retrieve_response(http: web.Request) -> web.Response:
    """``GET /v1/responses/{id}``."""
    if http.query.get("stream", "false").lower() != "false":
        raise unsupported("'stream': a stored response cannot be streamed again.", "stream")
    return _json(_find(http).document)


async def delete_response(http: web.Request) -> web.Response:
    """``DELETE /v1/responses/{id}``."""
    response_id = http.match_info["id"]
    if not http.app[RESPONSES].delete(key_digest(http), response_id):
        _not_found(response_id)
    return _json(encode({"id": response_id, "object": "response", "deleted": True}))


async def cancel_response(http: web.Request) -> web.Response:
    """``POST /v1/responses/{id}/cancel``: stored responses are finished, as none runs in the background."""
    _find(http)
    raise invalid("Only responses that run in the background can be cancelled.", code=None)


async def list_input_items(http: web.Request) -> web.Response:
    """``GET /v1/responses/{id}/input_items``: all items the response was made from, a page at a time."""
    items = _find(http).inputs()
    if _choice(http, "order", ("desc", "asc")) == "desc":
        items.reverse()
    limit = _limit(http)
    start = _after(http, items)
    page = items[start : start + limit]
    return _json(
        encode(
            {
                "object": "list",
                "data": page,
                "first_id": page[0]["id"] if page else None,
                "last_id": page[-1]["id"] if page else None,
                "has_more": start + limit < len(items),
            }
        )
    )


def _find(http: web.Request) -> StoredResponse:
    response_id = http.match_info["id"]
    return http.app[RESPONSES].find(key_digest(http), response_id) or _not_found(response_id)


def _not_found(response_id: str) -> NoReturn:
    raise ApiError(404, f"Response with id {show(response_id)} not found.")


def _choice(http: web.Request, name: str, choices: tuple[str, ...]) -> str:
    """A query parameter that has a few values, the first of which is the default."""
    value = http.query.get(name, choices[0])
    if value not in choices:
        raise invalid(f"Invalid value for '{name}': expected one of {', '.join(choices)}, got {show(value)}.", name)
    return value


def _limit(http: web.Request) -> int:
    value = http.query.get("limit", str(_DEFAULT_PAGE))
    if not (value.isascii() and value.isdecimal() and len(value) < 10 and 1 <= int(value) <= _MAX_PAGE):
        raise invalid(f"Invalid value for 'limit': expected 1 to {_MAX_PAGE}, got {show(value)}.", "limit")
    return int(value)


def _after(http: web.Request, items: list[dict[str, Any]]) -> int:
    """The place of the first item after the one named by the query; raises ApiError if there is none."""
    after = http.query.get("after")
    if after is None:
        return 0
    for index, item in enumerate(items):
        if item["id"] == after:
            return index + 1
    raise invalid(f"Invalid value for 'after': there is no item with id {show(after)}.", "after")


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
