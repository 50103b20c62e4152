"""One frontend process against an engine that costs nothing: requests and tokens per second, CPU time of each.

On a machine with few cores the engine and the client compete with the frontend for them, and wall-clock rates say
little. The frontend's own CPU time per token is the figure that holds: a core divided by it is what one process passes.
"""

import asyncio
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from msgspec import Struct

from pagewire.bench.client import Client, RequestSettings, Target
from pagewire.bench.experiment import run_once
from pagewire.bench.lengths import Lengths
from pagewire.bench.progress import QuietProgress
from pagewire.bench.results import LoadSettings, Run, Settings
from pagewire.bench.workloads import WorkloadSettings

_START_TIMEOUT_S = 30.0
_PROMPT_WORDS = 16


class Pace(Struct, frozen=True):
    """One load: so many streams, each of ``tokens`` tokens, one of them every ``step_s`` seconds."""

    name: str
    streams: int
    tokens: int
    step_s: float
    requests: int
    stream: bool = True


PACES = (
    Pace("plain answers of 1 token", 16, 1, 0.0, 1500, stream=False),
    Pace("streams of 256, 8k tokens/s", 64, 256, 0.008, 256),
    Pace("streams of 256, 16k tokens/s", 64, 256, 0.004, 320),
    Pace("streams of 256, 32k tokens/s", 64, 256, 0.002, 320),
    Pace("streams of 256, 64k tokens/s", 64, 256, 0.001, 320),
    Pace("streams of 256, as fast as they go", 64, 256, 0.0, 320),
)


class FrontendRow(Struct, frozen=True):
    """What came through at one pace. CPU times are of the frontend process alone."""

    name: str
    requests_per_s: float
    tokens_per_s: float
    tokens_per_event: float
    frontend_cpu: float
    us_per_request: float
    us_per_token: float
    client_cpu: float
    errors: int


async def measure_frontend() -> AsyncIterator[FrontendRow]:
    """Measure every pace, each with a new engine and a new frontend; raises ``OSError`` when one does not start."""
    for pace in PACES:
        async with _serving(pace.step_s) as (url, pid):
            yield await _measure_pace(pace, url, pid)


async def _measure_pace(pace: Pace, url: str, pid: int) -> FrontendRow:
    settings = Settings(
        LoadSettings(kind="closed", levels=[float(pace.streams)], requests=pace.requests, warmup=0),
        WorkloadSettings(Lengths("fixed", _PROMPT_WORDS), Lengths("fixed", pace.tokens), prompt="text"),
        RequestSettings(endpoint="chat", stream=pace.stream),
    )
    async with Client(Target("frontend", url, "costless"), settings.request) as client:
        before, started = cpu_seconds(pid), time.perf_counter()
        run, _ = await run_once(client, settings, float(pace.streams), 0, QuietProgress())
        cpu, wall = cpu_seconds(pid) - before, time.perf_counter() - started
    return _row(pace, run, cpu, wall)


def _row(pace: Pace, run: Run, cpu: float, wall: float) -> FrontendRow:
    summary = run.summary
    return FrontendRow(
        name=pace.name,
        requests_per_s=summary.request_rate,
        tokens_per_s=summary.output_rate,
        tokens_per_event=summary.tokens_per_event,
        frontend_cpu=cpu / wall,
        us_per_request=1e6 * cpu / max(1, summary.completed),
        us_per_token=1e6 * cpu / max(1, summary.output_tokens),
        client_cpu=run.harness.cpu,
        errors=summary.requests - summary.completed,
    )


def cpu_seconds(pid: int) -> float:
    """Return the CPU time a process has used so far, from the kernel's accounting (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    user_ticks, system_ticks = int(fields[11]), int(fields[12])
    return (user_ticks + system_ticks) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def _serving(step_s: float) -> AsyncIterator[tuple[str, int]]:
    """Run a costless engine and a frontend; gives the frontend's URL and process id."""
    with tempfile.TemporaryDirectory() as directory:
        address, port = f"ipc://{directory}/engine", free_port()
        engine = await _start("pagewire.bench.micro.costless", address, str(step_s))
        try:
            frontend = await _start("pagewire.frontend.main", "--engine", address, "--port", str(port))
            try:
                url = f"http://127.0.0.1:{port}"
                await _wait_until_ready(url, frontend)
                yield url, frontend.pid
            finally:
                await _stop(frontend)
        finally:
            await _stop(engine)


async def _start(module: str, *arguments: str) -> asyncio.subprocess.Process:
    silent = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdin=silent, stdout=silent, stderr=silent
    )


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGKILL)
    await process.wait()


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _wait_until_ready(url: str, frontend: asyncio.subprocess.Process) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < deadline and frontend.returncode is None:
            try:
                async with session.get(f"{url}/ready") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
    raise OSError("pagewire-frontend did not become ready")
