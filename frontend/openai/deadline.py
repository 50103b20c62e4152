"""The time that one request has, from its arrival to the end of its answer."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pagewire.frontend.openai.errors import timed_out


class Deadline:
    """Ends the blocks that it is ``kept`` in; of nested ones only the innermost, and it alone from then on.

    So whoever has begun an answer can end it in its own way.
    """

    def __init__(self, arrived: float, seconds: float | None):
        """``arrived`` is in ``time.perf_counter`` seconds; None is no limit."""
        self._arrived = arrived
        self._seconds = seconds
        self._clock: asyncio.Timeout | None = None
        self.passed = False

    def shorten(self, seconds: float | None) -> None:
        """Allow no more than ``seconds`` from the arrival, which are known once the body is read."""
        if seconds is not None and (self._seconds is None or seconds < self._seconds):
            self._seconds = seconds
            if self._clock:
                self._clock.reschedule(self._ends())

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Cancel what the block waits for when the time is up, and raise ApiError 504."""
        if self._clock:
            self._clock.reschedule(None)
        clock = self._clock = asyncio.timeout_at(self._ends())
        try:
            async with clock:
                yield
        except TimeoutError:
            if not clock.expired():
                raise
            self.passed = True
            raise timed_out(self._seconds or 0) from None

    def _ends(self) -> float | None:
        """When, by the event loop's clock."""
        if self._seconds is None:
            return None
        return asyncio.get_running_loop().time() + self._seconds - (time.perf_counter() - self._arrived)
