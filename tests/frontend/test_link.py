"""A link to one engine, against an engine whose every message the test decides."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
import zmq
import zmq.asyncio

from pagewire.frontend.generation import EngineError, Generation
from pagewire.frontend.link import EngineLink, LinkState
from pagewire.protocol.codec import decode_to_engine, encode
from pagewire.protocol.messages import (
    VERSION,
    Abort,
    Closing,
    Delta,
    Finish,
    Generate,
    Hello,
    Load,
    Output,
    Ping,
    Pong,
    Ready,
    Sampling,
    ToEngine,
    ToFrontend,
    Usage,
)
from tests.fake_engine import LIMITS, toy_model, until

SAMPLING = Sampling(max_tokens=8)
Kind = TypeVar("Kind")
END = Finish("stop", Usage(prompt=1, completion=1))


@dataclass
class BareEngine:
    """A bound ROUTER: ``heard`` has all that the frontend said but its pings, which are answered unless ``hung``."""

    address: str
    name: str = "first"
    version: int = VERSION
    welcoming: bool = True
    hung: bool = False
    heard: list[ToEngine] = field(default_factory=list)
    identity: bytes = b""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["BareEngine"]:
        """Be there while the block runs; leaving it is as sudden as a crash."""
        context = zmq.asyncio.Context()
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(self.address)
        reader = asyncio.create_task(self._read())
        try:
            yield self
        finally:
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
            self._socket.close()
            context.term()

    async def send(self, message: ToFrontend) -> None:
        await self.send_bytes(encode(message))

    async def send_bytes(self, data: bytes) -> None:
        await self._socket.send_multipart([self.identity, data])

    def of(self, kind: type[Kind]) -> list[Kind]:
        """What was heard of one kind of message."""
        return [message for message in self.heard if isinstance(message, kind)]

    async def _read(self) -> None:
        while True:
            self.identity, data = await self._socket.recv_multipart()
            message = decode_to_engine(data)
            if isinstance(message, Ping):
                if not self.hung:
                    await self.send(Pong(message.seq, Load(waiting=message.seq)))
                continue
            self.heard.append(message)
            if isinstance(message, Hello) and self.welcoming:
                await self.send(Ready(self.version, self.name, toy_model(), LIMITS, Load()))


@pytest.fixture(params=["ipc", "tcp"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> BareEngine:
    return BareEngine(f"ipc://{tmp_path}/engine" if request.param == "ipc" else f"tcp://127.0.0.1:{free_port()}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


StartLink = Callable[..., EngineLink]


@pytest.fixture
async def context() -> AsyncIterator[zmq.Context[zmq.Socket[bytes]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield context
    context.term()


@pytest.fixture
async def start_link(engine: BareEngine, context: zmq.Context[zmq.Socket[bytes]]) -> AsyncIterator[StartLink]:
    """Start links with short times; they are closed after the test."""
    links: list[EngineLink] = []

    def start(*, pong_timeout_s: float = 30.0) -> EngineLink:
        link = EngineLink(context, engine.address, "test", ping_interval_s=0.02, pong_timeout_s=pong_timeout_s)
        links.append(link)
        link.start()
        return link

    yield start
    for link in links:
        link.close()


async def be(link: EngineLink, state: LinkState) -> None:
    await until(lambda: link.state is state)


async def read(generation: Generation) -> list[Delta]:
    return [delta async for delta in generation]


# --- meeting


async def test_an_engine_that_is_there_first_becomes_ready(engine: BareEngine, start_link: StartLink) -> None:
    async with engine.serving():
        link = start_link()
        await be(link, LinkState.READY)
        assert link.ready is not None
        assert link.ready.model == toy_model()
        assert engine.of(Hello) == [Hello(VERSION, "test", 1)]


async def test_an_engine_that_comes_later_becomes_ready(engine: BareEngine, start_link: StartLink) -> None:
    link = start_link()
    await asyncio.sleep(0.05)
    assert link.state is LinkState.CONNECTING
    async with engine.serving():
        await be(link, LinkState.READY)


async def test_before_the_engine_is_ready_requests_are_refused(start_link: StartLink) -> None:
    with pytest.raises(EngineError, match="no engine has answered yet") as caught:
        start_link().generate([1], SAMPLING)
    assert caught.value.error.retryable


async def test_an_engine_of_another_version_is_refused_in_words(
    engine: BareEngine, start_link: StartLink, caplog: pytest.LogCaptureFixture
) -> None:
    engine.version = VERSION + 1
    async with engine.serving():
        link = start_link()
        await be(link, LinkState.REFUSED)
        with pytest.raises(EngineError, match="another protocol version"):
            link.generate([1], SAMPLING)
    assert f"version {VERSION + 1}, this frontend version {VERSION}" in caplog.text


async def test_a_refusal_by_the_engine_is_final_until_it_is_replaced(engine: BareEngine, start_link: StartLink) -> None:
    engine.welcoming = False
    link = start_link()
    async with engine.serving():
        await until(lambda: engine.of(Hello))
        await engine.send(Closing("version", "it speaks version 2"))
        await be(link, LinkState.REFUSED)
    engine.welcoming = True
    async with engine.serving():
        await be(link, LinkState.READY)


# --- requests


async def test_deltas_reach_the_request_they_belong_to(engine: BareEngine, start_link: StartLink) -> None:
    async with engine.serving():
        link = start_link()
        await be(link, LinkState.READY)
        one, two = link.generate([1], SAMPLING), link.generate([2, 3], SAMPLING, priority=4, salt="s")
        await until(lambda: len(engine.of(Generate)) == 2)
        assert engine.of(Generate)[1] == Generate(two.rid, (2, 3), SAMPLING, 4, "s")
        await engine.send(Output((Delta(two.rid), Delta(one.rid))))
        await one.accepted()
        await engine.send(Output((Delta(two.rid, "b", (2,), finish=END), Delta(one.rid, "a", (1,)))))
        await engine.send(Output((Delta(one.rid, "c", (3,), finish=END), Delta(999, "nobody's"))))
        assert "".join(delta.text for delta in await read(one)) == "ac"
        assert "".join(delta.text for delta in await read(two)) == "b"
        assert link.num_open == 0


async def test_leaving_a_request_aborts_it_once(engine: BareEngine, start_link: StartLink) -> None:
    async with engine.serving():
        link = start_link()
        await be(link, LinkState.READY)
        async with link.generate([1], SAMPLING) as left:
            await until(lambda: engine.of(Generate))
        left.close()
        await until(lambda: engine.of(Abort))
        await engine.send(Output((Delta(left.rid, "too late"),)))
        assert link.num_open == 0
        assert engine.of(Abort) == [Abort((left.rid,))]


async def test_a_request_that_has_ended_is_not_aborted(engine: BareEngine, start_link: StartLink) -> None:
    async with engine.serving():
        link = start_link()
        await be(link, LinkState.READY)
        async with link.generate([1], SAMPLING) as generation:
            await until(lambda: engine.of(Generate))
            await engine.send(Output((Delta(generation.rid, finish=END),)))
            await read(generation)
        async with link.generate([1], SAMPLING):
            await until(lambda: len(engine.of(Generate)) == 2)
        await until(lambda: engine.of(Abort))
        assert [abort.rids for abort in engine.of(Abort)] == [(generation.rid + 1,)]


async def test_closing_a_link_ends_its_requests_on_both_sides(
    engine: BareEngine, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    async with engine.serving():
        link = EngineLink(context, engine.address, "test")
        link.start()
        await be(link, LinkState.READY)
        generations = [link.generate([1], SAMPLING) for _ in range(3)]
        link.close()
        for generation in generations:
            with pytest.raises(EngineError, match="shutting down"):
                await generation.accepted()
        await until(lambda: engine.of(Abort))
        assert engine.of(Abort) == [Abort(tuple(generation.rid for generation in generations))]


async def test_garbage_is_dropped_and_the_next_message_is_read(
    engine: BareEngine, start_link: StartLink, caplog: pytest.LogCaptureFixture
) -> None:
    async with engine.serving():
        link = start_link()
        await be(link, LinkState.READY)
        generation = link.generate([1], SAMPLING)
        await until(lambda: engine.of(Generate))
        for data in (b"", b"\xc1", b"\x93\xa5Hello\x01\xa1x", encode(Ping(1)), b"\xff" * 1000):
            await engine.send_bytes(data)
        await engine.send(Output((Delta(generation.rid, "fine", (1,), finish=END),)))
        assert [delta.text for delta in await read(generation)] == ["fine"]
    assert "none of the protocol's" in caplog.text


async def test_the_load_is_the_newest_that_was_told(engine: BareEngine, start_link: StartLink) -> None:
    async with engine.serving():
        link = start_link()
        await until(lambda: link.load.waiting > 1)  # a pong's
        engine.hung = True
        await engine.send(Output((), Load(running=3)))
        await until(lambda: link.load.running == 3)


# --- losing the engine


async def test_a_request_sent_after_the_connection_broke_is_refused_at_once(
    engine: BareEngine, start_link: StartLink
) -> None:
    async with engine.serving():
        link = start_link()
        await be(link, LinkState.READY)
    while link.state is LinkState.READY:
        with suppress(EngineError):
            link.generate([1], SAMPLING)
        await asyncio.sleep(0)
    assert link.num_open == 0
    with pytest.raises(EngineError, match="No engine is ready: the engine went away"):
        link.generate([1], SAMPLING)


async def test_a_crash_ends_every_open_request_and_the_next_engine_is_ready_again(
    engine: BareEngine, start_link: StartLink
) -> None:
    link = start_link()
    async with engine.serving():
        await be(link, LinkState.READY)
        generations = [link.generate([1], SAMPLING) for _ in range(3)]
        await until(lambda: len(engine.of(Generate)) == 3)
        await engine.send(Output((Delta(generations[0].rid, "so far", (1,)),)))
        assert (await anext(generations[0])).text == "so far"
    for generation in generations:
        with pytest.raises(EngineError, match="the engine went away") as caught:
            await asyncio.wait_for(read(generation), 2)
        assert caught.value.error.retryable
    assert (link.state, link.num_open) == (LinkState.LOST, 0)
    successor = BareEngine(engine.address, name="second")
    async with successor.serving():
        await be(link, LinkState.READY)
        assert link.ready is not None
        assert link.ready.engine == "second"
        assert successor.heard == [Hello(VERSION, "test", 2)]


async def test_an_engine_that_fails_and_says_so_ends_every_open_request(
    engine: BareEngine, start_link: StartLink
) -> None:
    async with engine.serving():
        link = start_link()
        await be(link, LinkState.READY)
        generation = link.generate([1], SAMPLING)
        engine.hung = True
        await until(lambda: engine.of(Generate))
        await engine.send(Closing("fatal", "out of memory"))
        with pytest.raises(EngineError, match="The engine stopped: out of memory"):
            await generation.accepted()
        assert link.state is LinkState.LOST


async def test_an_engine_that_drains_takes_nothing_new_and_finishes_the_rest(
    engine: BareEngine, start_link: StartLink
) -> None:
    async with engine.serving():
        link = start_link()
        await be(link, LinkState.READY)
        generation = link.generate([1], SAMPLING)
        await until(lambda: engine.of(Generate))
        await engine.send(Closing("drain", "going"))
        await be(link, LinkState.DRAINING)
        with pytest.raises(EngineError, match="shutting down") as caught:
            link.generate([1], SAMPLING)
        assert caught.value.error.code == "draining"
        await engine.send(Output((Delta(generation.rid, "end", (1,), finish=END),)))
        assert [delta.text for delta in await read(generation)] == ["end"]


async def test_an_engine_that_hangs_is_noticed_and_greeted_once_when_it_runs_again(
    engine: BareEngine, start_link: StartLink
) -> None:
    async with engine.serving():
        link = start_link(pong_timeout_s=0.2)
        await be(link, LinkState.READY)
        generation = link.generate([1], SAMPLING)
        engine.hung = True
        with pytest.raises(EngineError, match="the engine does not answer"):
            await read(generation)
        assert link.state is LinkState.HUNG
        engine.hung = False
        await be(link, LinkState.READY)
        assert [hello.epoch for hello in engine.of(Hello)] == [1, 2]


async def test_an_engine_that_gave_this_frontend_up_is_greeted_again(engine: BareEngine, start_link: StartLink) -> None:
    async with engine.serving():
        link = start_link()
        await be(link, LinkState.READY)
        generation = link.generate([1], SAMPLING)
        await until(lambda: engine.of(Generate))
        await engine.send(Closing("fatal", "this frontend was silent for too long"))
        with pytest.raises(EngineError, match="silent"):
            await read(generation)
        await be(link, LinkState.READY)
        assert len(engine.of(Hello)) == 2
