"""Letting a request in: its body first, then a place among the open requests, and an end to the time that it has."""

import asyncio
import functools
from collections.abc import Awaitable, Callable

from aiohttp import web

from pagewire.frontend.openai.deadline import Deadline
from pagewire.frontend.openai.http import ARRIVED, DEADLINE
from pagewire.frontend.state import FRONTEND

# A body of the largest size takes less over any line that is of use; a client that stalls must not stay for ever.
BODY_SECONDS = 120.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def admitted(handler: Handler) -> Handler:
    """Count the requests of a handler as open while it runs, and end it when their time is up.

    It finds the body read: one that comes slowly, or never, takes no place from others. Raises ApiError 429, 503 and
    504, and aiohttp's 408 and 413.
    """

    @functools.wraps(handler)
    async def admit(http: web.Request) -> web.StreamResponse:
        frontend = http.app[FRONTEND]
        limit = frontend.config.request_timeout
        await _receive(http, BODY_SECONDS if limit is None else min(limit, BODY_SECONDS))
        http[DEADLINE] = Deadline(http[ARRIVED], limit)
        with frontend.admitted():
            async with http[DEADLINE].kept():
                return await handler(http)

    return admit


async def _receive(http: web.Request, seconds: float) -> None:
    """Read the body, which aiohttp keeps; one that says itself that it is too large is refused at once."""
    if http.content_length is not None and http.content_length > http.client_max_size:
        raise web.HTTPRequestEntityTooLarge(http.client_max_size, http.content_length)
    clock = asyncio.timeout(seconds)
    try:
        async with clock:
            await http.read()
    except TimeoutError:
        if not clock.expired():
            raise
        raise web.HTTPRequestTimeout from None
