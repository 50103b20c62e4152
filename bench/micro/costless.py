"""An engine that computes nothing: it speaks the protocol and hands out tokens at a given pace.

What a server does with it is the cost of HTTP, templates, tokenizing and messages alone. Run as a process of its own:
``python -m pagewire.bench.micro.costless ADDRESS STEP_SECONDS``.
"""

import sys
import time
from collections.abc import Iterator

import zmq

from pagewire.bench.micro.byte_tokenizer import VOCAB_SIZE, byte_tokenizer_json
from pagewire.protocol.codec import decode_to_engine, encode
from pagewire.protocol.messages import (
    VERSION,
    Abort,
    Delta,
    Finish,
    Generate,
    Hello,
    Limits,
    Load,
    Model,
    Output,
    Ping,
    Pong,
    Ready,
    ToEngine,
    Usage,
)
from pagewire.protocol.sockets import engine_socket

_IDLE_POLL_MS = 1000
_TEXT, _IDS = " token", (42,)
_TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"

_MODEL = Model(
    name="costless",
    path="costless",
    created=0,
    vocab_size=VOCAB_SIZE,
    eos_token_ids=(),
    tokenizer_json=byte_tokenizer_json(),
    chat_templates={"default": _TEMPLATE},
    special_tokens={},
    generation_defaults={},
    dtype="none",
)
_LIMITS = Limits(
    max_model_len=1 << 20,
    max_num_seqs=1 << 16,
    max_num_batched_tokens=1 << 20,
    max_logprobs=0,
    block_size=16,
    num_blocks=1 << 20,
)


class _Sequence:
    """One request: how many tokens it has got."""

    __slots__ = ("done", "request")

    def __init__(self, request: Generate) -> None:
        self.request = request
        self.done = 0

    def next_delta(self) -> Delta:
        self.done += 1
        wanted = self.request.sampling.max_tokens
        if self.done < wanted:
            return Delta(self.request.rid, _TEXT, _IDS)
        usage = Usage(len(self.request.prompt), wanted)
        return Delta(self.request.rid, _TEXT, _IDS, finish=Finish("length", usage))


class CostlessEngine:
    """Gives every running request one token per step; steps are ``step_s`` seconds apart, 0 as fast as it can."""

    def __init__(self, address: str, step_s: float) -> None:
        """Bind the address."""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = engine_socket(self._context, address)
        self._step_s = step_s
        self._running: dict[bytes, dict[int, _Sequence]] = {}

    def run(self) -> None:
        """Serve until the process ends."""
        due = time.perf_counter()
        while True:
            busy = any(self._running.values())
            wait_s = due - time.perf_counter() if busy else _IDLE_POLL_MS / 1000
            # A poll counts in milliseconds; the rest of a shorter wait is spent asking again.
            for identity, message in self._receive(max(0, int(1000 * wait_s))):
                self._handle(identity, message)
            if busy and time.perf_counter() >= due:
                self._step()
                due = max(due + self._step_s, time.perf_counter() - self._step_s)
            elif not busy:
                due = time.perf_counter() + self._step_s

    def _receive(self, timeout_ms: int) -> Iterator[tuple[bytes, ToEngine]]:
        if timeout_ms and not self._socket.poll(timeout_ms):
            return
        while True:
            try:
                identity, data = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield identity, decode_to_engine(data)

    def _handle(self, identity: bytes, message: ToEngine) -> None:
        match message:
            case Hello():
                self._running[identity] = {}
                self._send(identity, Ready(VERSION, "costless", _MODEL, _LIMITS, Load()))
            case Generate() as request:
                self._running.setdefault(identity, {})[request.rid] = _Sequence(request)
                self._send(identity, Output((Delta(request.rid),)))
            case Abort(rids):
                for rid in rids:
                    self._running.get(identity, {}).pop(rid, None)
            case Ping(seq):
                self._send(identity, Pong(seq, Load()))

    def _step(self) -> None:
        for identity, sequences in self._running.items():
            if not sequences:
                continue
            deltas = tuple(sequence.next_delta() for sequence in sequences.values())
            for delta in deltas:
                if delta.finish is not None:
                    del sequences[delta.rid]
            self._send(identity, Output(deltas))

    def _send(self, identity: bytes, message: Ready | Output | Pong) -> None:
        try:
            self._socket.send_multipart((identity, encode(message)), zmq.NOBLOCK)
        except zmq.ZMQError:  # that frontend is gone
            self._running[identity] = {}


if __name__ == "__main__":
    CostlessEngine(sys.argv[1], float(sys.argv[2])).run()
