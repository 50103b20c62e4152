"""The connection to one engine: who is there, is it alive, and which request gets which delta."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum

import zmq
from zmq.utils.monitor import parse_monitor_message

from pagewire.frontend.generation import EngineError, Generation, IsComplete
from pagewire.protocol.codec import DecodeError, decode_to_frontend, encode
from pagewire.protocol.messages import (
    VERSION,
    Abort,
    Closing,
    End,
    Error,
    ErrorCode,
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
)
from pagewire.protocol.sockets import descriptor, frontend_socket, has_message

logger = logging.getLogger(__name__)

PING_INTERVAL_S = 1.0
# Longer than any sane step: the engine answers between steps, and one of a large model on a busy CPU takes seconds.
PONG_TIMEOUT_S = 30.0
_MONITORED = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class LinkState(Enum):
    """Where a link stands; only a READY one takes requests."""

    CONNECTING = "no engine has answered yet"
    READY = "ready"
    DRAINING = "the engine is shutting down"
    LOST = "the engine went away"
    HUNG = "the engine does not answer"
    REFUSED = "the engine speaks another protocol version"


class EngineLink:
    """Owns one DEALER socket, its monitor, and the open requests of one engine.

    A request is open from ``generate`` until its finishing delta, its abort, or the loss of the engine; whatever ends
    it, its Generation hears of it exactly once.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        name: str,
        *,
        ping_interval_s: float = PING_INTERVAL_S,
        pong_timeout_s: float = PONG_TIMEOUT_S,
    ):
        """``name`` identifies this frontend in the engine's log."""
        self.address = address
        self.state = LinkState.CONNECTING
        self.ready: Ready | None = None
        self.load = Load()
        self._name = name
        self._ping_interval_s = ping_interval_s
        self._pong_timeout_s = pong_timeout_s
        self._connected = False
        self._epoch = 0
        self._next_rid = 0
        self._open: dict[int, Generation] = {}
        self._ping_seq = 0
        self._last_heard = time.monotonic()
        self._socket = frontend_socket(context)
        self._monitor = self._socket.get_monitor_socket(_MONITORED)
        self._pinger: asyncio.Task[None] | None = None

    @property
    def num_open(self) -> int:
        """Requests that this frontend has with the engine."""
        return len(self._open)

    def start(self) -> None:
        """Connect, and read from the running event loop from now on."""
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor(self._socket), self._read)
        loop.add_reader(descriptor(self._monitor), self._read_monitor)
        # A descriptor tells of new messages only after its socket was once found empty.
        self._read()
        self._read_monitor()
        self._socket.connect(self.address)
        self._pinger = loop.create_task(self._ping_forever())

    def close(self) -> None:
        """Drop the connection; the engine aborts what was still open."""
        if self._pinger:
            self._pinger.cancel()
        if self._open:
            self._send(Abort(rids=tuple(self._open)))
        self._fail_all(Error("draining", "the server is shutting down", retryable=True))
        loop = asyncio.get_running_loop()
        loop.remove_reader(descriptor(self._socket))
        loop.remove_reader(descriptor(self._monitor))
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        # Lets the Abort above leave; a dead engine must not hold the exit for longer.
        self._socket.close(linger=100)

    def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        priority: int = 0,
        salt: str = "",
        embed: bool = False,
        is_complete: IsComplete | None = None,
    ) -> Generation:
        """Send one request; raises EngineError if the engine is not ready."""
        if self.state is not LinkState.READY:
            raise EngineError(_not_ready_error(self.state))
        rid = self._next_rid
        self._next_rid += 1
        generation = Generation(rid, self._abort, self._end, is_complete)
        if not self._send(Generate(rid, tuple(prompt), sampling, priority, salt, embed)):
            # The connection is gone; the monitor will say so in a moment.
            raise EngineError(_not_ready_error(LinkState.LOST))
        self._open[rid] = generation
        return generation

    def _abort(self, rid: int) -> None:
        if self._open.pop(rid, None):
            self._send(Abort(rids=(rid,)))

    def _end(self, rid: int) -> None:
        if rid in self._open:
            self._send(End(rids=(rid,)))

    def _send(self, message: ToEngine) -> bool:
        """Send without waiting; False when no connection can take it."""
        if not self._connected:
            return False
        try:
            self._socket.send(encode(message), zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        # Sending may swallow the edge-triggered readiness of the socket's descriptor.
        if has_message(self._socket):
            asyncio.get_running_loop().call_soon(self._read)
        return True

    def _read(self) -> None:
        """Handle every message that has arrived; the descriptor is edge-triggered, so all must be taken."""
        while not self._socket.closed:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                message = decode_to_frontend(data)
            except (DecodeError, RecursionError) as error:
                logger.error("engine at %s sent a message that is none of the protocol's: %s", self.address, error)
                continue
            self._last_heard = time.monotonic()
            self._handle(message)

    def _handle(self, message: ToFrontend) -> None:
        match message:
            case Output(deltas, load):
                if load:
                    self.load = load
                for delta in deltas:
                    generation = self._open.get(delta.rid)
                    if generation:
                        if delta.finish:
                            del self._open[delta.rid]
                        generation.push(delta)
            case Pong(_, load):
                self.load = load
                if self.state in (LinkState.HUNG, LinkState.LOST):
                    # It runs after all. Whoever was silent for long, it or this frontend, is unknown to the other now.
                    self._greet()
            case Ready():
                self._become_ready(message)
            case Closing(reason, text):
                self._closing(reason, text)

    def _become_ready(self, ready: Ready) -> None:
        if ready.version != VERSION:
            self._closing("version", f"it speaks version {ready.version}, this frontend version {VERSION}")
            return
        self.ready, self.load, self.state = ready, ready.load, LinkState.READY
        logger.info("engine %s is ready at %s with model %s", ready.engine, self.address, ready.model.name)

    def _closing(self, reason: str, text: str) -> None:
        if reason == "drain":
            self.state = LinkState.DRAINING
            logger.info("engine at %s drains: %s", self.address, text)
            return
        logger.error("engine at %s closes (%s): %s", self.address, reason, text)
        self.state = LinkState.REFUSED if reason == "version" else LinkState.LOST
        self._fail_all(Error("internal", f"The engine stopped: {text}", retryable=True))

    def _read_monitor(self) -> None:
        """Follow the transport's own events: a killed engine shows here within milliseconds."""
        while not self._monitor.closed:
            try:
                frames = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.ZMQError:
                return
            event = parse_monitor_message(frames)["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._connected = True
                self._greet()
            elif event == zmq.EVENT_DISCONNECTED:
                self._connected = False
                # What the engine sent before it left is still to be read: answers that are complete are not lost.
                self._read()
                self._lose(LinkState.LOST)

    def _greet(self) -> None:
        self.state = LinkState.CONNECTING
        self._epoch += 1
        self._last_heard = time.monotonic()
        self._send(Hello(VERSION, self._name, self._epoch))

    def _lose(self, state: LinkState) -> None:
        if self.state in (LinkState.READY, LinkState.DRAINING):
            logger.warning(
                "engine at %s is lost (%s) with %d open requests", self.address, state.value, len(self._open)
            )
        if self.state is not LinkState.CONNECTING:
            self.state = state
        self._fail_all(Error("internal", f"The request was lost: {state.value}.", retryable=True))

    def _fail_all(self, error: Error) -> None:
        lost, self._open = self._open, {}
        for generation in lost.values():
            generation.fail(error)

    async def _ping_forever(self) -> None:
        """Notice an engine that is connected but does not run: no socket event tells of a stopped process."""
        with suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(self._ping_interval_s)
                self._ping_seq += 1
                self._send(Ping(self._ping_seq))
                silent = time.monotonic() - self._last_heard
                if silent > self._pong_timeout_s and self.state in (LinkState.READY, LinkState.DRAINING):
                    self._lose(LinkState.HUNG)


def _not_ready_error(state: LinkState) -> Error:
    code: ErrorCode = "draining" if state is LinkState.DRAINING else "internal"
    return Error(code, f"No engine is ready: {state.value}.", retryable=True)
