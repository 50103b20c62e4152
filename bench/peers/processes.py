"""A server as a group of processes: started, waited for, weighed and stopped. Linux only: it reads ``/proc``."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec
from msgspec import Struct

_POLL_S = 0.1
_STOP_S = 30.0
_READY_S = 600.0
_LOG_LINES_SHOWN = 15
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ServerSpec(Struct, frozen=True):
    """How to start a server. ``environ`` is added to the environment; it must serve plain HTTP on loopback ``port``.

    ``keeps_alive`` is False for a server that takes one request per connection, whatever its answers say.
    """

    name: str
    command: tuple[str, ...]
    port: int
    environ: dict[str, str] = {}
    keeps_alive: bool = True

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"


class ServerFailed(Exception):
    """A server ended, or did not answer in time; the text ends with what it last said."""


class Weight(Struct, frozen=True):
    """What a server costs while nobody asks it anything: its start, memory shared out fairly, share of one core."""

    start_s: float
    memory_mb: float
    idle_cpu: float


class ServerProcess:
    """A running server: a session of its own, so that all its processes can be found and stopped together."""

    def __init__(self, spec: ServerSpec, log: Path) -> None:
        """Start it; everything it says goes to ``log``."""
        self.spec = spec
        self.start_s = 0.0
        self._log = log
        self._started = time.monotonic()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                spec.command,
                env={**os.environ, **spec.environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The first of its processes."""
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Wait until a token comes out, and set ``start_s`` to how long it took. Raises ``ServerFailed``."""
        while time.monotonic() - self._started < _READY_S:
            if self._process.poll() is not None:
                raise ServerFailed(
                    f"{self.spec.name} ended with status {self._process.returncode}:\n{self._last_words()}"
                )
            if answers(self.spec.url):
                self.start_s = time.monotonic() - self._started
                return
            time.sleep(_POLL_S)
        raise ServerFailed(f"{self.spec.name} gave no token within {_READY_S:g} s:\n{self._last_words()}")

    def memory_mb(self) -> float:
        """Resident memory of all its processes, pages shared with others in parts."""
        return sum(map(_proportional_kb, _session_pids(self._process.pid))) / 1024

    def cpu_s(self) -> float:
        """CPU time of all its processes so far."""
        return sum(map(_cpu_s, _session_pids(self._process.pid)))

    def stop(self, grace_s: float = _STOP_S) -> None:
        """Ask the first process to end, and after ``grace_s`` end whatever is left."""
        self._process.terminate()
        if not self._wait_until_gone(grace_s):
            for pid in _session_pids(self._process.pid):
                _kill(pid)
            self._wait_until_gone(_STOP_S)
        self._process.wait()

    def _wait_until_gone(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while _session_pids(self._process.pid):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _last_words(self) -> str:
        return "\n".join(self._log.read_text("utf-8", "replace").splitlines()[-_LOG_LINES_SHOWN:])


@contextmanager
def running(specs: Sequence[ServerSpec], logs: Path) -> Iterator[list[ServerProcess]]:
    """Start servers one after the other, so that none slows the other's start, and stop them all at the end.

    Until then SIGTERM ends this program by ``SystemExit``, or they would outlive it.
    """
    servers: list[ServerProcess] = []
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        for spec in specs:
            servers.append(ServerProcess(spec, logs / f"{spec.name}.log"))
            servers[-1].wait_until_ready()
        yield servers
    finally:
        for server in servers:
            server.stop()
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def answers(url: str) -> bool:
    """Say whether the server at ``url`` generates a token."""
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as response:
            model = msgspec.json.decode(response.read())["data"][0]["id"]
        body = msgspec.json.encode({"model": model, "prompt": [1000], "max_tokens": 1})
        request = urllib.request.Request(f"{url}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.HTTPError, msgspec.DecodeError, LookupError, TypeError):
        return False


def weigh(servers: Sequence[ServerProcess], idle_s: float) -> dict[str, Weight]:
    """Watch idle servers for ``idle_s`` seconds and say what each costs."""
    before = [server.cpu_s() for server in servers]
    time.sleep(idle_s)
    return {
        server.spec.name: Weight(server.start_s, server.memory_mb(), (server.cpu_s() - used) / idle_s)
        for server, used in zip(servers, before, strict=True)
    }


def _session_pids(session: int) -> list[int]:
    """Find the processes of a session; its leader may be gone already."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and (fields := _stat(int(path.name))) and int(fields[3]) == session:
            found.append(int(path.name))
    return found


def _stat(pid: int) -> list[str] | None:
    """Return the fields of a process after its name, from the state on; None for one that is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields


def _cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S if fields else 0.0


def _proportional_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
