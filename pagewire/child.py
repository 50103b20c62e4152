"""A child process of ``pagewire serve``: started, its output passed on, told to stop, never left behind."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

_PR_SET_PDEATHSIG = 1
# A log line with a whole prompt in it fits; what is longer comes in pieces.
_LINE_LIMIT_BYTES = 1 << 20


class Child:
    """One program that may be started again and again; ``write`` gets each line it prints, stdout and stderr alike.

    The child leads its own process group, so that Ctrl-C in the terminal reaches the supervisor alone, which then
    stops its children in the right order.
    """

    def __init__(
        self, name: str, command: Sequence[str], environ: Mapping[str, str], write: Callable[[str], None]
    ) -> None:
        """Prepare; nothing runs before ``start``."""
        self.name = name
        self._command = command
        self._environ = environ
        self._write = write
        self._process: asyncio.subprocess.Process | None = None
        self._output: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process; raises ``OSError`` if it cannot be started."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**self._environ, "PYTHONUNBUFFERED": "1"},
            limit=_LINE_LIMIT_BYTES,
            process_group=0,
            preexec_fn=_die_with_parent(),
        )
        assert self._process.stdout is not None
        self._output = asyncio.create_task(self._pass_on(self._process.stdout))

    async def wait(self) -> int:
        """Wait for the end and return the status, as ``subprocess`` gives it: negative is a signal's number."""
        assert self._process is not None
        assert self._output is not None
        status = await self._process.wait()
        # The last words matter most. A grandchild may hold the pipe open, hence the limit.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._output), timeout=1)
        return status

    async def stop(self, grace: float) -> None:
        """Ask the process to end, and kill it after ``grace`` seconds; returns when it is gone."""
        if self._process is None or self._process.returncode is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.wait(), timeout=grace)
        except TimeoutError:
            self._write(f"did not stop within {grace:g} s, killing it")
            self.kill()
            await self.wait()

    def kill(self) -> None:
        """End the process at once, if it runs."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _pass_on(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                continue
            if not line:
                return
            self._write(line.decode(errors="replace").rstrip())


def _die_with_parent() -> Callable[[], None] | None:
    """Return what a new child runs before its program, so that even a killed supervisor leaves nothing behind.

    Only Linux has this. The library is loaded here because little is allowed between fork and exec.
    """
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def set_death_signal() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return set_death_signal
