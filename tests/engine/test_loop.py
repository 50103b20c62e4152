"""The loop and its socket, with a core that does what the test says and frontends that are bare sockets."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import zmq

from pagewire.engine import server as server_module
from pagewire.engine.core import EngineCore
from pagewire.engine.loop import EngineLoop
from pagewire.engine.sequence import Key
from pagewire.engine.server import Server
from pagewire.protocol.codec import decode_to_frontend, encode
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
from pagewire.protocol.sockets import frontend_socket
from tests.fake_engine import LIMITS, toy_model

TIMEOUT_MS = 5_000
# Steps that take no time would only fill the queues of those who do not listen.
STEP_S = 0.001
SAMPLING = Sampling(max_tokens=8)
FAR = 1_000_000  # tokens that nobody waits for

Message = TypeVar("Message")


@dataclass
class FakeCore:
    """Gives every request one token per step, up to ``max_tokens``; fails when told to."""

    running: dict[Key, Generate] = field(default_factory=dict)
    compiles: bool = False
    text: str = "x"
    sent: dict[Key, int] = field(default_factory=dict)
    refusal: str | None = None
    failure: BaseException | None = None
    preparations: int = 0

    @property
    def has_work(self) -> bool:
        return bool(self.running)

    def submit(self, key: Key, message: Generate) -> Finish | None:
        if self.refusal:
            return Finish("error", Usage(0, 0), error=Error("draining", self.refusal, retryable=True))
        self.running[key] = message
        self.sent[key] = 0
        return None

    def prepare(self) -> bool:
        self.preparations -= self.preparations > 0
        return self.preparations > 0

    def is_compiling(self, key: Key) -> bool:
        return self.compiles

    def abort(self, key: Key) -> None:
        self.running.pop(key, None)

    def end(self, key: Key) -> Delta | None:
        if not self.running.pop(key, None):
            return None
        return Delta(key[1], finish=Finish("stop", Usage(1, self.sent[key])))

    def abort_all(self, identity: bytes) -> int:
        keys = [key for key in self.running if key[0] == identity]
        for key in keys:
            self.abort(key)
        return len(keys)

    def refuse_new(self, reason: str) -> None:
        self.refusal = reason

    def load(self) -> Load:
        return Load(running=len(self.running))

    def step(self) -> list[tuple[Key, Delta]]:
        if self.failure:
            raise self.failure
        time.sleep(STEP_S)
        return [(key, self._next(key)) for key in tuple(self.running)]

    def _next(self, key: Key) -> Delta:
        limit = self.running[key].sampling.max_tokens
        self.sent[key] += 1
        finish = Finish("length", Usage(1, limit)) if self.sent[key] == limit else None
        if finish:
            del self.running[key]
        return Delta(key[1], self.text, (self.sent[key],), finish=finish)


@dataclass
class Peer:
    """A frontend that is nothing but a socket."""

    socket: zmq.Socket[bytes]

    def send(self, message: ToEngine) -> None:
        self.socket.send(encode(message))

    def hear(self) -> ToFrontend:
        assert self.socket.poll(TIMEOUT_MS), "nothing came"
        return decode_to_frontend(self.socket.recv())

    def hear_of(self, kind: type[Message]) -> Message:
        """The next message of a kind; others before it are skipped."""
        while not isinstance(message := self.hear(), kind):
            pass
        return message

    def join(self) -> Ready:
        self.send(Hello(VERSION, "peer", 1))
        ready = self.hear_of(Ready)
        assert isinstance(self.hear(), Pong)
        return ready

    def hear_to_the_end(self, rid: int) -> list[Delta]:
        deltas: list[Delta] = []
        while not (deltas and deltas[-1].finish):
            deltas += [delta for delta in self.hear_of(Output).deltas if delta.rid == rid]
        return deltas


@dataclass
class Stage:
    """A loop in a thread, and the core that it drives."""

    loop: EngineLoop
    core: FakeCore
    thread: threading.Thread
    failures: list[BaseException]

    def ended(self) -> bool:
        self.thread.join(TIMEOUT_MS / 1e3)
        return not self.thread.is_alive()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/engine"


@pytest.fixture
def stage(address: str) -> Iterator[Stage]:
    server, core = Server(address), FakeCore()
    failures: list[BaseException] = []
    # What the loop uses of a core, this one has.
    loop = EngineLoop(server, as_core(core), toy_model(), LIMITS, "engine-1")

    def run() -> None:
        try:
            loop.run()
        except RuntimeError as error:
            failures.append(error)
        finally:
            server.close()

    thread = threading.Thread(target=run)
    thread.start()
    stage = Stage(loop, core, thread, failures)
    yield stage
    loop.drain(0.0)
    assert stage.ended()


def as_core(core: Any) -> EngineCore:
    return core  # type: ignore[no-any-return]


@pytest.fixture
def connect(stage: Stage, address: str) -> Iterator[Callable[[], Peer]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    peers: list[Peer] = []

    def connect(identity: bytes | None = None, receives: int = 0) -> Peer:
        socket = frontend_socket(context)
        socket.setsockopt(zmq.RCVHWM, receives)
        if identity:
            socket.setsockopt(zmq.IDENTITY, identity)
        socket.connect(address)
        peers.append(Peer(socket))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.socket.close(linger=0)
    context.term()


@pytest.fixture
def peer(connect: Callable[[], Peer]) -> Peer:
    peer = connect()
    peer.join()
    return peer


def test_a_hello_is_answered_with_all_that_a_frontend_must_know(connect: Callable[[], Peer]) -> None:
    ready = connect().join()
    assert (ready.version, ready.engine, ready.model, ready.limits) == (VERSION, "engine-1", toy_model(), LIMITS)


def test_another_version_is_refused_in_words(connect: Callable[[], Peer]) -> None:
    peer = connect()
    peer.send(Hello(VERSION + 1, "peer", 1))
    closing = peer.hear_of(Closing)
    assert closing == Closing("version", f"it speaks version {VERSION}, the frontend version {VERSION + 1}")


def test_a_request_is_accepted_then_answered_to_its_end(peer: Peer) -> None:
    peer.send(Generate(3, (1,), SAMPLING))
    accepted, *deltas = peer.hear_to_the_end(3)
    assert accepted == Delta(3)
    assert [token for delta in deltas for token in delta.ids] == list(range(1, 9))
    assert [delta.finish is not None for delta in deltas] == [False] * 7 + [True]


def test_a_request_that_waits_for_its_grammar_is_not_accepted_before_a_step_says_so(peer: Peer, stage: Stage) -> None:
    stage.core.compiles = True
    peer.send(Generate(3, (1,), SAMPLING))
    first, *_ = peer.hear_to_the_end(3)
    assert first.ids == (1,)


def test_requests_of_two_frontends_may_have_the_same_id(connect: Callable[[], Peer]) -> None:
    peers = [connect(), connect()]
    for peer in peers:
        peer.join()
        peer.send(Generate(1, (1,), SAMPLING))
    assert [len(peer.hear_to_the_end(1)) for peer in peers] == [9, 9]


def test_deltas_of_one_step_travel_in_one_message(peer: Peer, stage: Stage) -> None:
    for rid in range(3):
        peer.send(Generate(rid, (1,), Sampling(max_tokens=FAR)))
    while len(peer.hear_of(Output).deltas) < 3:
        pass
    assert len(stage.core.running) == 3


def test_an_idle_engine_prepares_what_it_will_need_without_waiting(peer: Peer, stage: Stage) -> None:
    # Between all of them it would sleep for half an hour.
    stage.core.preparations = 10_000
    peer.send(Ping(1))
    while stage.core.preparations:
        peer.send(Ping(2))
        peer.hear_of(Pong)


def test_an_abort_stops_a_request_and_nothing_is_answered(peer: Peer, stage: Stage) -> None:
    peer.send(Generate(1, (1,), Sampling(max_tokens=FAR)))
    peer.hear_of(Output)
    peer.send(Abort((1, 77)))
    peer.send(Ping(5))
    assert peer.hear_of(Pong).seq == 5
    assert not stage.core.has_work


def test_an_end_is_answered_with_the_finish(peer: Peer) -> None:
    peer.send(Generate(1, (1,), Sampling(max_tokens=FAR)))
    peer.hear_of(Output)
    peer.send(End((1, 77)))
    finish = peer.hear_to_the_end(1)[-1].finish
    assert finish is not None
    assert finish.reason == "stop"


def test_a_ping_is_answered_while_requests_run(peer: Peer) -> None:
    peer.send(Generate(1, (1,), Sampling(max_tokens=FAR)))
    peer.hear_of(Output)
    peer.send(Ping(9))
    assert peer.hear_of(Pong) == Pong(9, Load(running=1))


def test_a_new_hello_drops_what_the_frontend_asked_before(peer: Peer, stage: Stage) -> None:
    peer.send(Generate(1, (1,), Sampling(max_tokens=FAR)))
    peer.hear_of(Output)
    peer.join()
    assert not stage.core.has_work


def test_who_has_not_said_hello_gets_pongs_and_no_tokens(connect: Callable[[], Peer], stage: Stage) -> None:
    stranger = connect()
    stranger.send(Generate(1, (1,), SAMPLING))
    stranger.send(Ping(4))
    assert stranger.hear() == Pong(4, Load())
    assert not stage.core.has_work


def test_garbage_is_dropped_and_the_next_message_is_read(peer: Peer) -> None:
    nested = b"\x93\xa4Ping\x01" + b"\x91" * 100_000 + b"\x01"
    for data in (b"", b"\xc1", b"\x92\xa5Ready\x01", b"\xff" * 500, nested):
        peer.socket.send(data)
    peer.socket.send_multipart([b"two", b"frames"])
    peer.send(Ping(1))
    assert peer.hear_of(Pong).seq == 1


def test_a_frontend_that_sends_without_end_does_not_keep_others_from_their_tokens(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_MESSAGES_A_TURN", 2)
    peer.send(Generate(1, (1,), SAMPLING))
    for seq in range(100):
        peer.send(Ping(seq))
    assert [type(peer.hear()) for _ in range(10)].count(Output) > 1


def test_a_frontend_that_comes_back_is_heard_although_its_old_connection_still_stands(
    peer: Peer, connect: Callable[..., Peer]
) -> None:
    again = connect(identity=peer.socket.getsockopt(zmq.IDENTITY))
    assert again.join().engine == "engine-1"


def test_requests_of_a_frontend_that_vanished_are_dropped(peer: Peer, connect: Callable[[], Peer]) -> None:
    other = connect()
    other.join()
    peer.send(Generate(1, (1,), Sampling(max_tokens=FAR)))
    peer.hear_of(Output)
    peer.socket.close(linger=0)
    wait_until_nothing_runs(other)


def test_requests_of_a_frontend_that_fell_silent_are_dropped_and_it_is_told(
    peer: Peer, connect: Callable[[], Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    peer.send(Generate(1, (1,), Sampling(max_tokens=FAR)))
    peer.hear_of(Output)
    monkeypatch.setattr(server_module, "FRONTEND_TIMEOUT_S", 0.05)
    assert peer.hear_of(Closing).message == "this frontend was silent for too long"
    monkeypatch.undo()
    other = connect()
    other.join()
    wait_until_nothing_runs(other)
    assert peer.join().engine == "engine-1"


@pytest.fixture(
    params=[("pagewire.protocol.sockets._MAX_UNREAD", 4), ("pagewire.engine.server.MAX_UNREAD_BYTES", 4_000_000)],
    ids=["messages", "bytes"],
)
def short_queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*request.param)


@pytest.mark.usefixtures("short_queue")
def test_a_frontend_that_reads_nothing_is_given_up_and_told_when_it_reads_again(
    stage: Stage, connect: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagewire.engine.loop.HOUSEKEEPING_INTERVAL_S", 0.05)
    stage.core.text = "x" * 1_000_000  # more than the system itself holds
    other, deaf = connect(), connect(receives=1)
    other.join()
    deaf.join()
    deaf.send(Generate(1, (1,), Sampling(max_tokens=FAR)))
    while not stage.core.sent:
        time.sleep(0.001)
    wait_until_nothing_runs(other)
    assert deaf.hear_of(Closing).message == "this frontend did not read what it was sent"
    assert deaf.join().engine == "engine-1"


def test_a_hello_again_does_not_make_the_answer_again(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(message: Any) -> bytes:
        assert not isinstance(message, Ready)
        return encode(message)

    monkeypatch.setattr(server_module, "encode", refuse)
    assert peer.join().model == peer.join().model == toy_model()


def wait_until_nothing_runs(peer: Peer) -> None:
    for seq in range(1_000_000):
        peer.send(Ping(seq))
        if not peer.hear_of(Pong).load.running:
            return


def test_a_drain_finishes_what_runs_and_refuses_what_is_new(peer: Peer, stage: Stage) -> None:
    peer.send(Generate(1, (1,), Sampling(max_tokens=FAR)))
    peer.hear_of(Output)
    stage.loop.drain(30.0)
    assert peer.hear_of(Closing) == Closing("drain", "the engine is shutting down")
    peer.send(Generate(2, (1,), SAMPLING))
    (refused,) = peer.hear_to_the_end(2)
    assert refused.finish is not None
    assert refused.finish.error is not None
    assert refused.finish.error.code == "draining"
    peer.send(Abort((1,)))
    assert stage.ended()


def test_a_drain_ends_with_its_grace(peer: Peer, stage: Stage) -> None:
    peer.send(Generate(1, (1,), Sampling(max_tokens=FAR)))
    peer.hear_of(Output)
    stage.loop.drain(0.05)
    assert stage.ended()


def test_a_frontend_that_joins_a_draining_engine_is_told(peer: Peer, stage: Stage, connect: Callable[[], Peer]) -> None:
    peer.send(Generate(1, (1,), Sampling(max_tokens=FAR)))
    peer.hear_of(Output)
    stage.loop.drain(30.0)
    peer.hear_of(Closing)
    late = connect()
    late.join()
    assert late.hear_of(Closing).reason == "drain"
    peer.send(Abort((1,)))


def test_a_step_that_fails_ends_the_loop_after_telling_the_frontends(peer: Peer, stage: Stage) -> None:
    stage.core.failure = RuntimeError("out of memory")
    peer.send(Generate(1, (1,), SAMPLING))
    assert peer.hear_of(Closing) == Closing("fatal", "RuntimeError: out of memory")
    assert stage.ended()
    assert [str(error) for error in stage.failures] == ["out of memory"]


def test_a_panic_of_a_library_ends_the_loop_as_any_failure_does(peer: Peer, stage: Stage) -> None:
    stage.core.failure = type("RustPanic", (BaseException,), {})("not expected")
    peer.send(Generate(1, (1,), SAMPLING))
    assert peer.hear_of(Closing) == Closing("fatal", "Panic: a library panicked: not expected")
    assert stage.ended()
