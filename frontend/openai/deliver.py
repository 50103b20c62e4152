"""Running a prepared request to its end, however its answer looks: time limit, failures, metrics, log line."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from aiohttp import web

from pagewire.frontend.openai import sse
from pagewire.frontend.openai.choices import Choices, started
from pagewire.frontend.openai.errors import ApiError, internal
from pagewire.frontend.openai.http import DEADLINE, SUMMARY
from pagewire.frontend.openai.progress import Progress
from pagewire.frontend.openai.work import Work
from pagewire.frontend.state import Frontend

logger = logging.getLogger(__name__)


class Delivery(Protocol):
    """How an endpoint hands out what is generated."""

    async def whole(self, choices: Choices) -> web.Response:
        """Wait for everything and return the plain answer."""
        ...

    async def stream(self, choices: Choices, response: web.StreamResponse) -> None:
        """Write events until every choice has finished; the response is prepared."""
        ...

    def failure(self, error: ApiError) -> bytes:
        """The events that end a stream which failed after its start."""
        ...


async def deliver(http: web.Request, frontend: Frontend, work: Work, delivery: Delivery) -> web.StreamResponse:
    """Run the request and send its answer.

    What goes wrong before the first byte of the answer is raised as ApiError; after it, it ends the stream.
    """
    stream = web.StreamResponse(headers=sse.HEADERS) if work.fields.stream else None
    try:
        async with (
            accounted(http, frontend, work.progress, work.summary),
            started(frontend.pool, work.target, work.jobs) as choices,
        ):
            if stream is None:
                return await delivery.whole(choices)
            await stream.prepare(http)
            with frontend.metrics.streams_open.track_inprogress():
                await delivery.stream(choices, stream)
            return stream
    except ApiError as error:
        if error.param == "grammar":  # the engine knows no fields
            error.param = work.grammar_field
            error.message = f"Invalid value for '{error.param}': {error.message}"
        if stream is None or not stream.prepared:
            raise
        await stream.write(delivery.failure(error))
        return stream


@asynccontextmanager
async def accounted(
    http: web.Request, frontend: Frontend, progress: Progress, summary: Callable[[], str]
) -> AsyncIterator[None]:
    """Keep the block to the request's time, and count and log how it ended.

    Raises ApiError for whatever goes wrong, but for a client that has gone: that is no failure.
    """
    failed = False
    try:
        async with http[DEADLINE].kept():
            yield
    except ApiError:
        failed = not http[DEADLINE].passed
        raise
    except ConnectionError:
        raise
    except Exception:
        logger.exception("a request failed")
        failed = True
        raise internal("The server failed to answer this request.") from None
    finally:
        progress.ended(failed=failed)
        if frontend.config.log_requests != "off":
            http[SUMMARY] = summary()
