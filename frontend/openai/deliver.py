"""Running a prepared request to its end, however its answer looks: time limit, failures, metrics, log line."""

import asyncio
import logging
from typing import Protocol

from aiohttp import web

from pagewire.frontend.openai import sse
from pagewire.frontend.openai.choices import Choices, started
from pagewire.frontend.openai.errors import ApiError, internal, timed_out
from pagewire.frontend.openai.http import SUMMARY
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
    limit = _time_limit(frontend.config.request_timeout, work.fields.timeout)
    stream = web.StreamResponse(headers=sse.HEADERS) if work.fields.stream else None
    failed = False
    try:
        async with asyncio.timeout(limit), started(frontend.pool, work.target, work.jobs) as choices:
            if stream is None:
                return await delivery.whole(choices)
            await stream.prepare(http)
            with frontend.metrics.streams_open.track_inprogress():
                await delivery.stream(choices, stream)
            return stream
    except TimeoutError:
        error = timed_out(limit or 0)
    except ApiError as fault:
        error, failed = fault, True
    except ConnectionError:
        raise
    except Exception:
        logger.exception("a request failed")
        error, failed = internal("The server failed to answer this request."), True
    finally:
        work.progress.ended(failed=failed)
        if frontend.config.log_requests != "off":
            http[SUMMARY] = work.summary()
    if stream is None or not stream.prepared:
        raise error
    await stream.write(delivery.failure(error))
    return stream


def _time_limit(server: float | None, request: float | None) -> float | None:
    limits = [limit for limit in (server, request) if limit is not None]
    return min(limits, default=None)
