"""The real programs as processes, and what a test needs to know of them."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import openai

# The time that a slow and busy machine may need; nothing here is about speed.
START_S = 120.0
STOP_S = 30.0
POLL_S = 0.05

Kind = TypeVar("Kind", bound="Program")


@dataclass
class Program:
    """A running ``pagewire-engine`` or ``pagewire-frontend`` whose output goes to a file."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """The exit status; negative is a signal's number."""
        return self.process.wait(STOP_S)

    def resident_bytes(self) -> int:
        """Memory that the process holds now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match
        return int(match[1]) * 1024


@dataclass
class Frontend(Program):
    """A frontend and the ways to talk to it."""

    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def client_options(self) -> dict[str, Any]:
        # A client that tries again would hide the errors that tests are about.
        return {"base_url": f"{self.url}/v1", "api_key": "none", "max_retries": 0, "timeout": 60.0}

    def client(self, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(**self.client_options | options)

    def async_client(self, **options: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(**self.client_options | options)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body; 0 while nobody listens."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_until_ready(self) -> None:
        self.wait_for_ready_status(200)

    def wait_for_ready_status(self, status: int) -> None:
        wait_until(lambda: self.get("/ready")[0] == status, f"/ready never became {status}")

    def gauge(self, name: str) -> float:
        """The sum of a metric's samples."""
        samples = re.findall(rf"^pagewire_{name}(?:{{.*}})? (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        assert samples, f"no metric {name}"
        return sum(map(float, samples))

    def wait_until_idle(self) -> None:
        """Wait until the engine reports that nothing runs, waits or holds a block."""
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        wait_until(lambda: not any(self.gauge(name) for name in names), "the engine never became idle")


@dataclass
class Deployment:
    """Engines and frontends that share a directory; all are gone when ``running`` ends."""

    directory: Path
    programs: list[Program] = field(default_factory=list)

    @classmethod
    @contextlib.contextmanager
    def running(cls) -> Iterator["Deployment"]:
        # A directory of its own: the path of a socket must be short.
        with tempfile.TemporaryDirectory(prefix="pagewire-") as directory:
            deployment = cls(Path(directory))
            try:
                yield deployment
            finally:
                for program in deployment.programs:
                    program.kill()

    @property
    def address(self) -> str:
        return f"ipc://{self.directory}/engine"

    def start_engine(self, model: str | Path, *options: str) -> Program:
        """Start an engine; it is not ready yet."""
        fixed = ("--endpoint", self.address, "--device", "cpu", "--threads", "1", "--no-warmup")
        process, log = self._start("engine", (str(model), *fixed, *options))
        return self._keep(Program(process, log))

    def start_frontend(self, *options: str, engine: str | None = None) -> Frontend:
        """Start a frontend and wait until it listens."""
        port = free_port()
        fixed = ("--engine", engine or self.address, "--port", str(port), "--no-access-log")
        frontend = self._keep(Frontend(*self._start("frontend", (*fixed, *options)), port))
        wait_until(lambda: frontend.get("/health")[0] == 200, f"no frontend: {frontend.log.read_text()}")
        return frontend

    def _keep(self, program: Kind) -> Kind:
        self.programs.append(program)
        return program

    def _start(self, name: str, options: tuple[str, ...]) -> "tuple[subprocess.Popen[bytes], Path]":
        log = self.directory / f"{name}-{len(self.programs)}.log"
        environ = {key: value for key, value in os.environ.items() if not key.startswith("PAGEWIRE_")}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", f"pagewire.{name}.main", *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            )
        return process, log


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], failure: str) -> None:
    """Poll until something is so."""
    deadline = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < deadline, failure
        time.sleep(POLL_S)
