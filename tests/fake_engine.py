"""An engine without a model: speaks the real protocol over a real socket, and says what a test's script tells it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import zmq
import zmq.asyncio

from pagewire.protocol.codec import decode_to_engine, encode
from pagewire.protocol.messages import (
    VERSION,
    Abort,
    Closing,
    Delta,
    End,
    Error,
    Finish,
    Generate,
    Hello,
    Limits,
    Load,
    Logprob,
    Model,
    Output,
    Ping,
    Pong,
    Ready,
    Sampling,
    ToFrontend,
    TopLogprob,
    Usage,
)
from tests.toy_tokenizer import CHATML, IM_END, VOCAB_SIZE, tokenizer_json


@dataclass(frozen=True, slots=True)
class Say:
    """Generate a text, one token per character (one id per byte of it)."""

    text: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Go on when the event is set."""

    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error: a refusal if it comes first, a failure later."""

    error: Error


@dataclass(frozen=True, slots=True)
class Silence:
    """Never say anything again."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End with ``stop`` and what matched."""

    matched: str | int | None = None


Step = Say | Wait | Refuse | Silence | Stop
Script = Callable[[Generate], Iterable[Step]]


def say(text: str) -> Script:
    """A script that says the same to everyone and stops."""
    return lambda request: [Say(text), Stop()]


def toy_model(**changes: Any) -> Model:
    """A model for the toy tokenizer."""
    values: dict[str, Any] = {
        "name": "toy",
        "path": "/models/toy-path",
        "created": 1_700_000_000,
        "vocab_size": VOCAB_SIZE,
        "eos_token_ids": (IM_END,),
        "tokenizer_json": tokenizer_json(),
        "chat_templates": {"default": CHATML},
        "special_tokens": {"eos_token": "<|im_end|>"},
        "generation_defaults": {},
        "dtype": "float32",
    }
    return Model(**{**values, **changes})


LIMITS = Limits(
    max_model_len=512, max_num_seqs=8, max_num_batched_tokens=512, max_logprobs=20, block_size=16, num_blocks=64
)


@dataclass
class FakeEngine:
    """Plays ``script`` for every request; remembers what it was asked and what was aborted."""

    address: str
    script: Script = field(default_factory=lambda: say("Hello there!"))
    model: Model = field(default_factory=toy_model)
    limits: Limits = LIMITS
    cached: int = 0
    embedding: bytes | None = None  # the answer to whoever wants one
    load: Load = field(default_factory=Load)
    received: list[Generate] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    performances: dict[tuple[bytes, int], "Performance"] = field(default_factory=dict)
    running: dict[tuple[bytes, int], asyncio.Task[None]] = field(default_factory=dict)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FakeEngine"]:
        """Be there while the block runs; leaving it is as sudden as a crash."""
        context = zmq.asyncio.Context()
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(self.address)
        loop = asyncio.create_task(self._receive())
        try:
            yield self
        finally:
            for task in (loop, *self.running.values()):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await loop
            self._socket.close()
            context.term()

    async def close(self, reason: Any, message: str) -> None:
        """Tell every frontend that asked something that the engine closes."""
        for identity in {identity for identity, _ in self.running}:
            await self._send(identity, Closing(reason, message))

    async def _receive(self) -> None:
        while True:
            identity, data = await self._socket.recv_multipart()
            match decode_to_engine(data):
                case Hello():
                    engine = f"fake-{id(self)}"
                    await self._send(identity, Ready(VERSION, engine, self.model, self.limits, self.load))
                case Ping(seq):
                    await self._send(identity, Pong(seq, self.load))
                case Abort(rids):
                    self.aborted += rids
                    for rid in rids:
                        if task := self.running.pop((identity, rid), None):
                            task.cancel()
                case End(rids):
                    for rid in rids:
                        if task := self.running.pop((identity, rid), None):
                            task.cancel()
                            await self._send_delta(identity, self.performances[identity, rid].end_early())
                case Generate() as request:
                    self.received.append(request)
                    self.running[identity, request.rid] = asyncio.create_task(self._play(identity, request))

    async def _play(self, identity: bytes, request: Generate) -> None:
        if request.embed:
            finish = Finish("stop", Usage(len(request.prompt), 0))
            await self._send_delta(identity, Delta(request.rid, finish=finish, embedding=self.embedding))
            return
        performance = self.performances[identity, request.rid] = Performance(request, self.cached)
        steps = list(self.script(request))
        if not isinstance(steps[0], Refuse):
            await self._send_delta(identity, Delta(request.rid))
        for step in steps:
            match step:
                case Wait(event):
                    await event.wait()
                case Silence():
                    await asyncio.Event().wait()
                case _:
                    for delta in performance.play(step):
                        await self._send_delta(identity, delta)
            if performance.over:
                break
        self.running.pop((identity, request.rid), None)

    async def _send_delta(self, identity: bytes, delta: Delta) -> None:
        await self._send(identity, Output((delta,), self.load))
        # Lets others speak between two tokens, as a batch would.
        await asyncio.sleep(0)

    async def _send(self, identity: bytes, message: ToFrontend) -> None:
        await self._socket.send_multipart([identity, encode(message)])


class Performance:
    """Turns the steps of one request's script into deltas, with limits and log-probabilities as an engine has them."""

    def __init__(self, request: Generate, cached: int):
        self.over = False
        self._request = request
        self._cached = cached
        self._num_tokens = 0
        self._num_chars = 0

    def play(self, step: Step) -> Iterator[Delta]:
        """The deltas of one step."""
        match step:
            case Say(text):
                yield from self._say(text)
            case Stop(matched):
                self._num_tokens += matched is None
                yield self._end("stop", matched=matched)
            case Refuse(error):
                yield self._end("error", error=error)

    def end_early(self) -> Delta:
        """The end that the frontend asked for."""
        return self._end("stop")

    def _say(self, text: str) -> Iterator[Delta]:
        limit = self._request.sampling.max_tokens
        for character in text if limit else "":
            ids = tuple(character.encode())[: limit - self._num_tokens]
            yield Delta(
                self._request.rid,
                text=character,
                ids=ids,
                logprobs=self._logprobs(character, ids),
                prompt_logprobs=None if self._num_tokens else self._prompt_logprobs(),
            )
            self._num_tokens += len(ids)
            self._num_chars += 1
            if self._num_tokens >= limit:
                break
        if self._num_tokens >= limit:
            yield self._end("length")

    def _end(self, reason: Any, *, matched: str | int | None = None, error: Error | None = None) -> Delta:
        self.over = True
        usage = Usage(len(self._request.prompt), self._num_tokens, cached=self._cached, queued_ms=1.0, prefill_ms=2.0)
        return Delta(
            self._request.rid,
            finish=Finish(reason, usage, matched, error),
            prompt_logprobs=None if self._num_tokens else self._prompt_logprobs(),
        )

    def _logprobs(self, text: str, ids: Sequence[int]) -> tuple[Logprob, ...] | None:
        wanted = self._request.sampling.logprobs
        if wanted is None:
            return None
        return tuple(logprob(token, wanted, self._num_chars, text) for token in ids)

    def _prompt_logprobs(self) -> tuple[Logprob | None, ...] | None:
        wanted = self._request.sampling.prompt_logprobs
        if wanted is None:
            return None
        later = (logprob(token, wanted, offset) for offset, token in enumerate(self._request.prompt) if offset)
        return (None, *later)


def logprob(token: int, top: int, offset: int, text: str | None = None) -> Logprob:
    """A plausible entry: the token itself leads ``top`` candidates."""
    shown = chr(token) if text is None else text
    candidates = tuple(
        TopLogprob(token + rank, -0.5 - rank, chr(token + rank), bytes([(token + rank) % 256])) for rank in range(top)
    )
    return Logprob(token, -0.5, shown, bytes([token % 256]), 1, offset, candidates)


def sampling_of(engine: FakeEngine) -> Sampling:
    """The sampling of the only request that came."""
    [request] = engine.received
    return request.sampling


async def until(condition: Callable[[], Any], seconds: float = 15.0) -> None:
    """Wait until something is so; fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)
