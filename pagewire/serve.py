"""``pagewire serve``: an engine and a frontend as children, started, watched, started again, and stopped together.

Until both have been ready once, a child that ends takes the command down with its own status: what is wrong then (a
model that is not there, a port in use) does not get better by trying again. After that, a crashed child is restarted.
"""

import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pagewire.child import Child
from pagewire.console import Console
from pagewire.readiness import Target
from pagewire.restarts import RestartPolicy
from pagewire.serve_options import ServeOptions, read_serve_options

PROGRAMS = {name: (sys.executable, "-m", f"pagewire.{name}.main") for name in ("engine", "frontend")}

FAILED, GAVE_UP = 1, 3
_CHILD_STATUSES = frozenset({1, 2})

_POLL_S = 0.2
# Beyond the time that a program gives its own requests, for it to notice and to leave.
_STOP_MARGIN_S = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until told to stop; returns 0 after a clean stop, 1 if the start failed, 3 after giving up."""
    directory = Path(tempfile.mkdtemp(prefix="pagewire-"))
    try:
        options = read_serve_options(sys.argv[1:] if argv is None else argv, f"ipc://{directory / 'engine'}")
        return asyncio.run(_supervise(options))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _supervise(options: ServeOptions) -> int:
    return await Supervisor(options, Console()).run()


class Supervisor:
    """Owns the two children. ``_outcome`` is the exit status, set once by whoever decides that it is over."""

    def __init__(
        self, options: ServeOptions, console: Console, programs: Mapping[str, Sequence[str]] = PROGRAMS
    ) -> None:
        """Prepare both children, inside the event loop; nothing runs before ``run``."""
        self._options = options
        self._console = console
        self._target = Target(options.frontend)
        self._engine = self._child("engine", programs["engine"], options.engine_environ)
        self._frontend = self._child("frontend", programs["frontend"], options.frontend_environ)
        self._was_ready = False
        self._outcome: asyncio.Future[int] = asyncio.Future()
        self._cut_short = 0

    async def run(self) -> int:
        """Run both until a signal, a failed start or too many crashes; then stop both and return the exit status."""
        if await self._target.is_taken():
            self._console.line(f"another server already answers at {self._target.base_url}; choose another --port")
            return FAILED
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        tasks = [
            asyncio.create_task(self._keep_running(self._engine)),
            asyncio.create_task(self._keep_running(self._frontend)),
            asyncio.create_task(self._announce()),
        ]
        status = await self._outcome
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._console.end_progress()
        await self._stop_children()
        return self._cut_short or status

    def _child(self, name: str, command: Sequence[str], environ: dict[str, str]) -> Child:
        # JSON lines stay whole; they name their program themselves.
        prefix = "" if self._options.engine.log_format == "json" else f"{name:<8} | "
        return Child(name, command, environ, lambda line: self._console.line(prefix + line))

    def _on_signal(self, number: signal.Signals) -> None:
        """Drain on the first signal; on the second end everything at once."""
        if not self._outcome.done():
            self._console.line("stopping; open requests may finish, another Ctrl-C stops at once")
            self._outcome.set_result(0)
        else:
            self._cut_short = 128 + number
            self._frontend.kill()
            self._engine.kill()

    async def _keep_running(self, child: Child) -> None:
        policy = RestartPolicy()
        while True:
            started = time.monotonic()
            try:
                await child.start()
            except OSError as error:
                self._decide(FAILED, f"the {child.name} cannot be started: {error}")
                return
            status = await child.wait()
            how = f"signal {-status}" if status < 0 else f"status {status}"
            if not self._was_ready:
                self._decide(status if status in _CHILD_STATUSES else FAILED, f"the {child.name} ended ({how})")
                return
            delay = policy.next_delay(time.monotonic() - started)
            if delay is None:
                self._decide(GAVE_UP, f"the {child.name} keeps crashing ({how}), giving up")
                return
            self._console.line(f"the {child.name} ended ({how}), starting it again in {delay:g} s")
            await asyncio.sleep(delay)

    async def _announce(self) -> None:
        """Show progress until an engine can answer, then say how to ask it."""
        started = time.monotonic()
        while not await self._target.is_ready():
            self._console.progress(f"loading {self._options.engine.model} ... {time.monotonic() - started:.0f} s")
            await asyncio.sleep(_POLL_S)
        self._was_ready = True
        self._console.end_progress()
        curl = self._target.curl(await self._target.model_name())
        self._console.line(
            f"\nready after {time.monotonic() - started:.1f} s at {self._target.base_url}/v1 (Ctrl-C stops); try:\n\n"
            f"{curl}\n"
        )

    def _decide(self, status: int, why: str) -> None:
        if not self._outcome.done():
            self._console.line(why)
            self._outcome.set_result(status)

    async def _stop_children(self) -> None:
        """Stop the frontend first: its open requests still need the engine."""
        loading = not self._was_ready
        for child, drain in (
            (self._frontend, self._options.frontend.shutdown_timeout),
            (self._engine, self._options.engine.shutdown_timeout),
        ):
            await child.stop(_STOP_MARGIN_S if loading else drain + _STOP_MARGIN_S)
