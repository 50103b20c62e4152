"""One sequence being generated, seen from the frontend: a mailbox that an engine link fills and a handler empties."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from msgspec import structs

from pagewire.protocol.messages import Delta, Error, Finish

# Told every delta of one sequence, in order; True when the answer needs no more than those.
IsComplete = Callable[[Delta], bool]


class EngineError(Exception):
    """A request was refused, failed in the engine, or lost its engine."""

    def __init__(self, error: Error):
        """Wrap the protocol's error; the HTTP layer maps ``error.code`` to a status."""
        super().__init__(error.message)
        self.error = error


class Generation:
    """The deltas of one sequence, in order.

    An async context manager: leaving it, for any reason, aborts what still runs. Iterating yields deltas; those that
    arrive faster than they are taken are merged, so a slow client costs no more memory than its answer and sees fewer,
    larger pieces. The last delta carries ``finish``.
    """

    def __init__(
        self,
        rid: int,
        abort: Callable[[int], None],
        end: Callable[[int], None] = lambda rid: None,
        is_complete: IsComplete | None = None,
    ):
        """``abort`` tells the engine to drop ``rid``; called at most once, and only while the request is open.

        When the answer ``is_complete``, ``end`` asks the engine to finish it, and what it generates until it does is
        left out.
        """
        self.rid = rid
        self._abort = abort
        self._end = end
        self._is_complete = is_complete
        self._complete = False
        self._num_tokens = 0
        self._pending: list[Delta] = []
        self._error: Error | None = None
        self._accepted = False
        self._finished = False
        self._drained = False
        self._waiter: asyncio.Future[None] | None = None

    async def accepted(self) -> None:
        """Return once the engine has queued the request; raises EngineError if it refuses."""
        while not (self._accepted or self._error):
            await self._wait()
        if self._error:
            raise EngineError(self._error)

    def push(self, delta: Delta) -> None:
        """Take one delta from the engine."""
        self._accepted = True
        if delta.finish and delta.finish.error:
            self.fail(delta.finish.error)
            return
        if delta.finish:
            self._finished = True
        if delta.ids or delta.text or delta.finish or delta.prompt_logprobs:
            self._pending.append(delta)
        self._wake()

    def fail(self, error: Error) -> None:
        """End the request with an error, which the reader gets after the deltas that came before it."""
        self._error = error
        self._finished = True
        self._wake()

    def __aiter__(self) -> Self:
        """Iterate over merged deltas."""
        return self

    async def __anext__(self) -> Delta:
        """Wait for the next delta; raises EngineError on failure and ends after the finishing delta."""
        while True:
            taken, self._pending = self._pending, []
            if wanted := self._wanted(taken):
                merged = merge(wanted)
                self._drained = merged.finish is not None
                return merged
            if self._error:
                raise EngineError(self._error)
            if self._drained:
                raise StopAsyncIteration
            await self._wait()

    async def __aenter__(self) -> Self:
        """Enter; nothing happens yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Abort the request unless it is over."""
        self.close()

    def close(self) -> None:
        """Abort the request unless it is over; harmless when repeated."""
        if not self._finished:
            self._finished = True
            self._abort(self.rid)

    def _wanted(self, deltas: list[Delta]) -> list[Delta]:
        """Those up to the one that makes the answer complete, and the finish."""
        if self._is_complete is None:
            return deltas
        wanted: list[Delta] = []
        for delta in deltas:
            if not self._complete:
                wanted.append(delta)
                self._num_tokens += len(delta.ids)
                self._complete = self._is_complete(delta)
                if self._complete and not self._finished:
                    self._end(self.rid)
            elif delta.finish:
                usage = structs.replace(delta.finish.usage, completion=self._num_tokens)
                wanted.append(Delta(self.rid, finish=Finish("stop", usage)))
        return wanted

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)


def merge(deltas: list[Delta]) -> Delta:
    """Join consecutive deltas of one request into one that says the same."""
    if len(deltas) == 1:
        return deltas[0]
    logprobs = [entry for delta in deltas for entry in delta.logprobs or ()]
    return Delta(
        rid=deltas[0].rid,
        text="".join(delta.text for delta in deltas),
        ids=tuple(token for delta in deltas for token in delta.ids),
        logprobs=tuple(logprobs) if any(delta.logprobs is not None for delta in deltas) else None,
        finish=deltas[-1].finish,
        prompt_logprobs=next((delta.prompt_logprobs for delta in deltas if delta.prompt_logprobs is not None), None),
        embedding=deltas[-1].embedding,
    )
