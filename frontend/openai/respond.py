"""Running a prepared request and answering it, whole or as a stream; chat and completions differ in a ``Shape``."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from aiohttp import web

from pagewire.frontend.generation import merge
from pagewire.frontend.openai import sse
from pagewire.frontend.openai.choices import Choices, Collected
from pagewire.frontend.openai.deliver import deliver
from pagewire.frontend.openai.errors import ApiError
from pagewire.frontend.openai.work import Work
from pagewire.frontend.state import Frontend
from pagewire.protocol.messages import Delta


class Shape(Protocol):
    """How an endpoint writes its answers. Choices are bytes of JSON, as they stand in a list of choices."""

    def envelope(self, *, stream: bool) -> dict[str, Any]:
        """The fields around the choices: id, object, created, model."""
        ...

    def heading(self) -> dict[str, Any]:
        """More fields of a stream's first chunk; if there are any, ``opening`` must not be empty."""
        ...

    def opening(self) -> Iterable[bytes]:
        """What a stream sends of its choices before anything is generated."""
        ...

    def pieces(self, index: int, delta: Delta) -> Sequence[bytes]:
        """What a stream sends of a choice for a delta, in chunks of their own; none if there is nothing to say yet."""
        ...

    def whole(self, choices: Sequence[Collected]) -> dict[str, Any]:
        """The fields of a plain answer that depend on what was generated."""
        ...


async def respond(http: web.Request, frontend: Frontend, work: Work, shape: Shape) -> web.StreamResponse:
    """Run the request and send its answer, see ``deliver``."""
    return await deliver(http, frontend, work, _Choices(frontend, work, shape))


class _Choices:
    """Delivers a list of choices, whole or as chunks."""

    def __init__(self, frontend: Frontend, work: Work, shape: Shape):
        self._frontend = frontend
        self._work = work
        self._shape = shape

    async def whole(self, choices: Choices) -> web.Response:
        work, shape = self._work, self._shape
        collected = [Collected() for _ in work.jobs]
        while not choices.finished:
            batch = await choices.next()
            work.progress.observe(batch)
            for index, delta in batch:
                work.usage.add(index, delta)
                collected[index].add(delta)
        answer = {**shape.envelope(stream=False), **shape.whole(collected), "usage": work.usage.as_json()}
        return web.Response(body=sse.encode(answer), content_type="application/json")

    async def stream(self, choices: Choices, response: web.StreamResponse) -> None:
        await _Streaming(self._frontend, self._work, self._shape, response).run(choices)

    def failure(self, error: ApiError) -> bytes:
        return sse.error_event(error)


class _Streaming:
    """Sends one stream: opening, pieces as they come, usage if asked for, end mark."""

    def __init__(self, frontend: Frontend, work: Work, shape: Shape, response: web.StreamResponse):
        options = work.fields.stream_options
        self._work = work
        self._shape = shape
        self._response = response
        self._keep_alive = frontend.config.sse_keep_alive_interval or None
        self._interval = frontend.config.stream_interval
        self._usage_at_end = bool(options and options.include_usage)
        self._usage_always = bool(options and options.continuous_usage_stats)
        self._frame = sse.ChunkFrame(shape.envelope(stream=True), null_usage=self._usage_at_end)
        # Per choice, what --stream-interval holds back; a choice without an entry has sent nothing yet.
        self._held: dict[int, list[Delta]] = {}

    async def run(self, choices: Choices) -> None:
        """Stream until every choice has finished."""
        opening = list(self._shape.opening())
        if heading := self._shape.heading():
            if self._usage_at_end:
                heading = {**heading, "usage": None}
            await self._response.write(self._frame.with_fields(opening.pop(0), heading))
        await self._send(opening)
        waiting = True
        while not choices.finished:
            # Comments go out only while nothing was generated: a client may trip over one before the usage chunk.
            batch = await choices.next(self._keep_alive if waiting else None)
            if not batch:
                await self._response.write(sse.KEEP_ALIVE)
                continue
            waiting = False
            self._work.progress.observe(batch)
            await self._send(self._pieces(batch))
        usage = self._frame.with_usage(b"", self._work.usage.as_json()) if self._usage_at_end else b""
        await self._response.write(usage + sse.DONE)

    def _pieces(self, batch: Sequence[tuple[int, Delta]]) -> Iterable[bytes]:
        for index, delta in batch:
            due = delta if self._interval == 1 else self._hold(index, delta)
            if due is not None:
                self._work.usage.add(index, due)
                yield from self._shape.pieces(index, due)

    def _hold(self, index: int, delta: Delta) -> Delta | None:
        """Gather ``--stream-interval`` tokens of a choice, except for its first and its last piece."""
        first = index not in self._held
        held = self._held.setdefault(index, [])
        held.append(delta)
        if not (first or delta.finish) and sum(len(part.ids) for part in held) < self._interval:
            return None
        self._held[index] = []
        return merge(held)

    async def _send(self, pieces: Iterable[bytes]) -> None:
        """Write pieces as chunks, all in one go."""
        head, tail = self._frame.head, self._frame.tail
        if self._usage_always:
            usage = self._work.usage
            chunks = [self._frame.with_usage(piece, usage.as_json()) for piece in pieces]
        else:
            chunks = [head + piece + tail for piece in pieces]
        if chunks:
            await self._response.write(b"".join(chunks))
