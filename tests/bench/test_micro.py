import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from pagewire.bench.cli import main
from pagewire.bench.micro.frontend import cpu_seconds
from pagewire.bench.micro.request import example_request, rendered_example
from pagewire.bench.micro.scheduler import _Decodes
from pagewire.bench.micro.timing import measure
from pagewire.protocol.codec import decode_to_frontend, encode
from pagewire.protocol.messages import (
    VERSION,
    Abort,
    Delta,
    Finish,
    Generate,
    Hello,
    Output,
    Ping,
    Pong,
    Ready,
    Sampling,
    ToFrontend,
    Usage,
)
from pagewire.protocol.sockets import frontend_socket


class Peer:
    """A frontend's side of the connection."""

    def __init__(self, context: zmq.Context, address: str) -> None:
        self.socket = frontend_socket(context)
        self.socket.connect(address)

    def send(self, message: Hello | Generate | Abort | Ping) -> None:
        self.socket.send(encode(message))

    def receive(self) -> ToFrontend:
        assert self.socket.poll(20_000), "the engine said nothing"
        return decode_to_frontend(self.socket.recv())


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[Peer]:
    address = f"ipc://{tmp_path}/engine"
    engine = subprocess.Popen([sys.executable, "-m", "pagewire.bench.micro.costless", address, "0.001"])
    context = zmq.Context()
    peer = Peer(context, address)
    yield peer
    peer.socket.close()
    context.term()
    engine.kill()
    engine.wait()


def test_the_costless_engine_keeps_the_protocols_contract(peer: Peer) -> None:
    peer.send(Hello(VERSION, "test", 1))
    ready = peer.receive()
    assert isinstance(ready, Ready)
    assert ready.version == VERSION
    for rid, tokens in ((1, 3), (2, 1), (3, 1_000_000)):
        peer.send(Generate(rid, (5, 6), Sampling(max_tokens=tokens)))
    peer.send(Abort((3,)))
    peer.send(Ping(7))
    deltas: dict[int, list[Delta]] = {1: [], 2: [], 3: []}
    pongs = []
    while not (pongs and all(deltas[rid] and deltas[rid][-1].finish for rid in (1, 2))):
        match peer.receive():
            case Pong(seq):
                pongs.append(seq)
            case Output(found):
                for delta in found:
                    deltas[delta.rid].append(delta)
    assert pongs == [7]
    assert [len(delta.ids) for delta in deltas[1]] == [0, 1, 1, 1]
    assert [delta.finish is not None for delta in deltas[1]] == [False, False, False, True]
    assert deltas[1][-1].finish == Finish("length", Usage(prompt=2, completion=3))
    assert len(deltas[2]) == 2


def test_the_scheduler_under_measurement_stays_full() -> None:
    decodes = _Decodes(4, output=3)
    for _ in range(50):
        decodes.step()
    assert decodes._added > 50


def test_a_measurement_is_per_unit() -> None:
    found = measure("sum", "number", lambda: sum(range(1000)), units=1000)
    assert 0 < found.best_us <= found.median_us
    assert found.median_us < 100


def test_the_request_under_measurement_is_as_large_as_said_and_is_read_whole() -> None:
    body = example_request()
    assert (len(body["messages"]), len(body["tools"])) == (20, 5)
    prompt = rendered_example()
    for number in range(4):
        assert prompt.count(f'"look_up_{number}"') == 2, "described, and called"
    assert prompt.count("<tool_response>") == 4


def test_cpu_time_is_the_kernels() -> None:
    assert cpu_seconds(os.getpid()) == pytest.approx(time.process_time(), abs=0.5)


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["micro", "gpu"]) == 2
    assert "no part 'gpu'; there are codec, scheduler" in capsys.readouterr().err
