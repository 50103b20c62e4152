"""The engine's main loop: receive, step, send. One thread owns all of it."""

import logging
import time

from pagewire.engine.core import EngineCore
from pagewire.engine.sequence import Key
from pagewire.engine.server import Server
from pagewire.engine.stats import BatchLog
from pagewire.protocol.messages import (
    VERSION,
    Abort,
    Closing,
    Delta,
    End,
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
)
from pagewire.protocol.panics import no_panics

logger = logging.getLogger(__name__)

# How long an idle engine sleeps between looks at its frontends and at a stop request.
IDLE_POLL_MS = 200
LOAD_INTERVAL_S = 0.1
HOUSEKEEPING_INTERVAL_S = 1.0


class EngineLoop:
    """Connects a Server to an EngineCore until told to stop."""

    def __init__(self, server: Server, core: EngineCore, model: Model, limits: Limits, engine_id: str):
        """``engine_id`` is new at each start, so frontends can tell a restarted engine from the old one."""
        self._server = server
        self._core = core
        # The tokenizer in it has megabytes, and a frontend may say Hello as often as it likes.
        self._ready = server.prepare(Ready(VERSION, engine_id, model, limits, Load()))
        self._batch_log = BatchLog()
        self._drain_until: float | None = None
        self._drain_asked: float | None = None
        self._next_load = 0.0
        self._next_housekeeping = 0.0

    def drain(self, grace_s: float) -> None:
        """Ask the loop to finish running requests within ``grace_s`` and return; safe in a signal handler."""
        self._drain_asked = grace_s

    def run(self) -> None:
        """Serve until a drain is complete; whatever a step raises ends the loop after telling the frontends."""
        try:
            with no_panics():
                while not self._drained():
                    self._turn()
        except Exception as error:
            logger.exception("the engine failed and stops")
            self._server.broadcast(Closing("fatal", f"{type(error).__name__}: {error}"))
            raise

    def _turn(self) -> None:
        is_idle = not self._core.has_work and not self._core.prepare()
        for identity, message in self._server.receive(IDLE_POLL_MS if is_idle else 0):
            self._handle(identity, message)
        # Between receiving and a step, which may be long: silence is only known after everything there was is read.
        self._keep_house(time.monotonic())
        if self._core.has_work:
            self._send(self._core.step())

    def _keep_house(self, now: float) -> None:
        if now < self._next_housekeeping:
            return
        self._next_housekeeping = now + HOUSEKEEPING_INTERVAL_S
        for identity in self._server.silent():
            # A process that was stopped may run again; it must not wait for answers that never come.
            self._server.send(identity, Closing("fatal", "this frontend was silent for too long"))
            self._lose(identity)
        for identity in tuple(self._server.behind):
            self._lose(identity)
            # If it reads after all, it must not wait for ever for what it asked.
            if self._server.send(identity, Closing("fatal", "this frontend did not read what it was sent")):
                self._server.behind.discard(identity)
        self._batch_log.report(self._core.load(), now)

    def _drained(self) -> bool:
        """Start a drain that was asked for, and say whether it is over."""
        if self._drain_asked is not None and self._drain_until is None:
            self._drain_until = time.monotonic() + self._drain_asked
            self._core.refuse_new("the engine is shutting down")
            self._server.broadcast(Closing("drain", "the engine is shutting down"))
            logger.info("draining: no new requests; running ones have %.0f s to finish", self._drain_asked)
        if self._drain_until is None:
            return False
        return not self._core.has_work or time.monotonic() >= self._drain_until

    def _handle(self, identity: bytes, message: ToEngine) -> None:
        match message:
            case Generate():
                refusal = self._core.submit((identity, message.rid), message)
                # Whether a grammar can be used shows when it is compiled: the step that finds out answers.
                if refusal or not self._core.is_compiling((identity, message.rid)):
                    self._reply(identity, Delta(rid=message.rid, finish=refusal))
            case Abort(rids):
                for rid in rids:
                    self._core.abort((identity, rid))
            case End(rids):
                for rid in rids:
                    if delta := self._core.end((identity, rid)):
                        self._reply(identity, delta)
            case Ping(seq):
                self._server.send(identity, Pong(seq, self._core.load()))
            case Hello():
                self._welcome(identity, message)

    def _welcome(self, identity: bytes, hello: Hello) -> None:
        if hello.version != VERSION:
            text = f"it speaks version {VERSION}, the frontend version {hello.version}"
            self._server.send(identity, Closing("version", text))
            return
        # A new Hello means a new connection: what an earlier one asked for has no reader any more.
        self._core.abort_all(identity)
        is_new = identity not in self._server.frontends
        if not (self._server.send(identity, self._ready) and self._server.send(identity, Pong(0, self._core.load()))):
            self._lose(identity)
            return
        self._server.greet(identity, hello)
        if is_new:
            logger.info("frontend %s connected", self._server.frontends[identity].name)
        if self._drain_until is not None:
            self._server.send(identity, Closing("drain", "the engine is shutting down"))

    def _reply(self, identity: bytes, delta: Delta) -> None:
        if not self._server.send(identity, Output((delta,))):
            self._lose(identity)

    def _send(self, outputs: list[tuple[Key, Delta]]) -> None:
        """Send one Output per frontend, now and then with the load."""
        by_frontend: dict[bytes, list[Delta]] = {}
        for (identity, _), delta in outputs:
            by_frontend.setdefault(identity, []).append(delta)
        load = None
        if by_frontend and time.monotonic() >= self._next_load:
            self._next_load = time.monotonic() + LOAD_INTERVAL_S
            load = self._core.load()
        for identity, deltas in by_frontend.items():
            if not self._server.send(identity, Output(tuple(deltas), load)):
                self._lose(identity)

    def _lose(self, identity: bytes) -> None:
        dropped = self._core.abort_all(identity)
        frontend = self._server.frontends.get(identity)
        if frontend:
            logger.warning("frontend %s is gone; dropped its %d requests", frontend.name, dropped)
        self._server.forget(identity)
