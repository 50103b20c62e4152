"""The sequences of one request as a whole: start them, merge their deltas, collect their texts."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from pagewire.frontend.generation import EngineError, Generation, IsComplete
from pagewire.frontend.openai.errors import from_engine
from pagewire.frontend.pool import EngineModel, EnginePool
from pagewire.protocol.messages import Delta, Finish, Logprob, Sampling


@dataclass(frozen=True, slots=True)
class Job:
    """One choice to generate."""

    prompt: tuple[int, ...]
    sampling: Sampling
    priority: int = 0
    salt: str = ""
    is_complete: IsComplete | None = None  # when nothing more of it is wanted


@dataclass(slots=True)
class Collected:
    """Everything one choice produced so far."""

    pieces: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)
    prompt_logprobs: tuple[Logprob | None, ...] | None = None
    finish: Finish | None = None

    @property
    def text(self) -> str:
        """The generated text."""
        return "".join(self.pieces)

    def add(self, delta: Delta) -> None:
        """Append one delta."""
        self.pieces.append(delta.text)
        self.ids += delta.ids
        self.logprobs.extend(delta.logprobs or ())
        if delta.prompt_logprobs is not None:
            self.prompt_logprobs = delta.prompt_logprobs
        self.finish = delta.finish


class Choices:
    """Merges the deltas of several generations, in the order they come."""

    def __init__(self, generations: Sequence[Generation]):
        """The position of a generation is the index of its choice."""
        self._open = dict(enumerate(generations))
        self._arriving: dict[asyncio.Task[Delta], int] = {}

    @property
    def finished(self) -> bool:
        """True when every choice has finished."""
        return not self._open

    async def next(self, seconds: float | None = None) -> list[tuple[int, Delta]]:
        """Wait for deltas and return what has come, by choice; nothing if ``seconds`` pass first.

        Raises ApiError if one of the generations fails.
        """
        try:
            if len(self._open) == 1 and not self._arriving and seconds is None:
                [(index, generation)] = self._open.items()
                batch = [(index, await anext(generation))]
            else:
                batch = await self._next_of_many(seconds)
        except EngineError as error:
            raise from_engine(error.error) from None
        for index, delta in batch:
            if delta.finish:
                del self._open[index]
        return batch

    def close(self) -> None:
        """Stop waiting; the generations themselves belong to whoever opened them."""
        for task in self._arriving:
            if not task.cancel() and not task.cancelled():
                task.exception()
        self._arriving.clear()

    async def _next_of_many(self, seconds: float | None) -> list[tuple[int, Delta]]:
        awaited = set(self._arriving.values())
        for index, generation in self._open.items():
            if index not in awaited:
                self._arriving[asyncio.ensure_future(anext(generation))] = index
        done, _ = await asyncio.wait(self._arriving, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        batch: list[tuple[int, Delta]] = []
        failure: BaseException | None = None
        # Every result is fetched, or asyncio would report those of a lost engine's other choices as never seen.
        for task in done:
            index = self._arriving.pop(task)
            if error := task.exception():
                failure = error
            else:
                batch.append((index, task.result()))
        if failure:
            raise failure
        return sorted(batch, key=lambda item: item[0])


@asynccontextmanager
async def started(pool: EnginePool, target: EngineModel, jobs: Sequence[Job]) -> AsyncIterator[Choices]:
    """Send all jobs and wait until an engine has accepted each; on leaving, whatever still runs is aborted.

    Raises ApiError if one is refused.
    """
    async with AsyncExitStack() as stack:
        generations = []
        try:
            for job in jobs:
                generation = pool.generate(
                    target,
                    job.prompt,
                    job.sampling,
                    priority=job.priority,
                    salt=job.salt,
                    is_complete=job.is_complete,
                )
                generations.append(await stack.enter_async_context(generation))
            for generation in generations:
                await generation.accepted()
        except EngineError as error:
            raise from_engine(error.error) from None
        choices = Choices(generations)
        stack.callback(choices.close)
        yield choices
