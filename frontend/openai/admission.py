"""Letting a request in: its body first, then a place among the open requests, and an end to the time that it has."""

import asyncio
import functools
import math
from collections.abc import Awaitable, Callable

from aiohttp import web

from pagewire.frontend.openai.bodies import BodyShare
from pagewire.frontend.openai.deadline import Deadline
from pagewire.frontend.openai.errors import ApiError
from pagewire.frontend.openai.http import ARRIVED, BODY, DEADLINE
from pagewire.frontend.openai.parse import show
from pagewire.frontend.state import FRONTEND

# The content codings that aiohttp undoes, if it has the library; it passes on bodies in any other as they are.
_CODINGS = frozenset({"", "identity", "gzip", "deflate", "br", "zstd"})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def admitted(handler: Handler) -> Handler:
    """Count the requests of a handler as open while it runs, and end it when their time is up.

    It finds the body read: one that comes slowly, or never, takes no place from others. Raises ApiError 415, 429, 503
    and 504, and aiohttp's 408 and 413.
    """

    @functools.wraps(handler)
    async def admit(http: web.Request) -> web.StreamResponse:
        frontend = http.app[FRONTEND]
        limit = frontend.config.request_timeout
        with BodyShare(frontend.bodies) as share:
            http[BODY] = await _receive(http, share, min(limit or math.inf, frontend.config.body_timeout))
            http[DEADLINE] = Deadline(http[ARRIVED], limit)
            with frontend.admitted():
                async with http[DEADLINE].kept():
                    return await handler(http)

    return admit


async def _receive(http: web.Request, share: BodyShare, seconds: float) -> bytes:
    """Read the body; one that says itself that it is too large is refused at once."""
    coding = http.headers.get("Content-Encoding", "").lower()
    if coding not in _CODINGS:
        raise ApiError(415, f"The content coding {show(coding)} is unknown here; expected gzip, deflate or none.")
    expected = http.content_length or 0
    if expected > http.client_max_size:
        raise web.HTTPRequestEntityTooLarge(http.client_max_size, expected)
    share.expect(expected)
    clock = asyncio.timeout(seconds)
    try:
        async with clock:
            return await _read(http, share)
    except TimeoutError:
        if not clock.expired():
            raise
        raise web.HTTPRequestTimeout from None


async def _read(http: web.Request, share: BodyShare) -> bytes:
    chunks, size = [], 0
    while chunk := await http.content.readany():
        size += len(chunk)
        if size > http.client_max_size:
            raise web.HTTPRequestEntityTooLarge(http.client_max_size, size)
        share.grow(size)
        chunks.append(chunk)
    return b"".join(chunks)
