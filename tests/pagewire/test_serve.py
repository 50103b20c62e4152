import asyncio
import contextlib
import io
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pagewire import restarts, serve
from pagewire.console import Console
from pagewire.engine.config import EngineConfig
from pagewire.frontend.config import FrontendConfig
from pagewire.readiness import Target
from pagewire.restarts import MAX_QUICK_FAILURES, QUICK_FAILURE_S, RestartPolicy
from pagewire.serve import Supervisor
from pagewire.serve_options import read_serve_options

FAKE_PROGRAMS = str(Path(__file__).with_name("fake_programs.py"))
ADDRESS = "ipc:///tmp/pagewire-test/engine"
TIMEOUT_S = 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Stage:
    """A supervisor over fake programs, with what it wrote and what they noted."""

    directory: Path
    engine: str = ""
    frontend: str = ""
    port: int = field(default_factory=free_port)
    output: io.StringIO = field(default_factory=io.StringIO)

    @property
    def journal(self) -> Path:
        return self.directory / "journal"

    def noted(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def programs(self) -> dict[str, list[str]]:
        behaviours = {"engine": self.engine, "frontend": self.frontend}
        return {
            name: [sys.executable, FAKE_PROGRAMS, name, str(self.journal), behaviour]
            for name, behaviour in behaviours.items()
        }

    async def run(self) -> int:
        options = read_serve_options(["demo", "--port", str(self.port), "--shutdown-timeout", "1"], ADDRESS, environ={})
        return await Supervisor(options, Console(self.output), self.programs()).run()

    @contextlib.asynccontextmanager
    async def running(self):
        """Run until ready, then the body; yields the future exit status."""
        status = asyncio.create_task(self.run())
        try:
            await until(lambda: "ready after" in self.output.getvalue() or status.done())
            self.journal.with_suffix(".announced").touch()
            yield status
            await asyncio.wait_for(status, TIMEOUT_S)
        finally:
            status.cancel()


async def until(condition) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 (files and streams, nothing to await)
            await asyncio.sleep(0.02)


def send_signal(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def stage(tmp_path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def quick_restarts(monkeypatch):
    monkeypatch.setattr(restarts, "FIRST_DELAY_S", 0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_frontend_before_the_engine_and_is_a_success(stage, number):
    async with stage.running() as status:
        send_signal(number)
    assert status.result() == 0
    assert stage.noted()[-2:] == ["frontend stopped", "engine stopped"]


async def test_readiness_is_announced_with_a_request_to_paste(stage):
    async with stage.running():
        send_signal(signal.SIGTERM)
    (line,) = [line for line in stage.output.getvalue().splitlines() if line.startswith("curl")]
    words = shlex.split(line)
    assert f"http://127.0.0.1:{stage.port}/v1/chat/completions" in words
    assert json.loads(words[-1])["model"] == "toy"


async def test_output_of_the_programs_is_passed_on_with_their_names(stage):
    async with stage.running():
        send_signal(signal.SIGTERM)
    assert "engine   | hello from engine" in stage.output.getvalue()
    assert "frontend | hello from frontend" in stage.output.getvalue()


@pytest.mark.parametrize("name", ["engine", "frontend"])
async def test_a_failed_start_ends_everything_with_its_status(stage, name):
    setattr(stage, name, "fail")
    async with stage.running() as status:
        pass
    assert status.result() == 1
    assert f"the {name} ended (status 1)" in stage.output.getvalue()


async def test_a_program_that_cannot_be_started_ends_everything(stage, monkeypatch):
    programs = {**stage.programs(), "engine": ["/nowhere/pagewire-engine"]}
    monkeypatch.setattr(stage, "programs", lambda: programs)
    async with stage.running() as status:
        pass
    assert status.result() == 1
    assert "the engine cannot be started" in stage.output.getvalue()


@pytest.mark.usefixtures("quick_restarts")
async def test_a_crashed_engine_is_started_again(stage):
    stage.engine = "crash-once"
    async with stage.running() as status:
        await until(lambda: stage.noted().count("engine up") == 2)
        send_signal(signal.SIGTERM)
    assert status.result() == 0
    assert "the engine ended (status 5), starting it again" in stage.output.getvalue()


@pytest.mark.usefixtures("quick_restarts")
async def test_after_too_many_quick_crashes_it_gives_up(stage):
    stage.engine = "crash-always"
    async with stage.running() as status:
        pass
    assert status.result() == serve.GAVE_UP == 3
    starts = [line for line in stage.noted() if line.startswith("engine started")]
    assert len(starts) == MAX_QUICK_FAILURES + 1


async def test_a_second_signal_ends_everything_at_once(stage):
    stage.engine = stage.frontend = "stubborn"
    async with stage.running() as status:
        await until(lambda: {"engine up", "frontend up"} <= set(stage.noted()))
        send_signal(signal.SIGTERM)
        await until(lambda: "stopping" in stage.output.getvalue())
        send_signal(signal.SIGINT)
    assert status.result() == 128 + signal.SIGINT
    assert not any(is_alive(int(line.split()[2])) for line in stage.noted() if " started " in line)


async def test_a_port_that_is_taken_is_said_before_anything_starts(stage):
    async with stage.running():
        second = Stage(stage.directory / "second", port=stage.port)
        assert await second.run() == 1
        assert "another server already answers" in second.output.getvalue()
        assert second.noted() == []
        send_signal(signal.SIGTERM)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the parent death signal of Linux")
async def test_children_die_with_a_killed_supervisor(stage):
    code = (
        "import asyncio, pathlib, sys\n"
        "from pagewire.child import Child\n"
        "async def main():\n"
        f"    child = Child('engine', {stage.programs()['engine']!r}, {{}}, print)\n"
        "    await child.start()\n"
        "    await child.wait()\n"
        "asyncio.run(main())\n"
    )
    supervisor = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.DEVNULL)
    await until(lambda: "engine up" in stage.noted())
    supervisor.kill()
    await supervisor.wait()
    pid = int(stage.noted()[0].split()[2])
    await until(lambda: not is_alive(pid))


def test_flags_reach_the_program_that_owns_them():
    argv = ["demo", "--port", "8123", "--threads", "2", "--log-level", "debug", "--api-key", "a,b", "--no-warmup"]
    options = read_serve_options(argv, ADDRESS, environ={"HOME": "/h", "PAGEWIRE_MAX_N": "3"})
    assert options.engine == EngineConfig(model="demo", threads=2, log_level="debug", endpoint=ADDRESS, warmup=False)
    assert options.frontend == FrontendConfig(
        port=8123, log_level="debug", api_key=("a", "b"), max_n=3, engine=(ADDRESS,)
    )


def test_what_the_children_inherit_says_the_same(monkeypatch):
    argv = ["demo", "--port", "8123", "--api-key", "a", "--no-warmup", "--default-chat-template-kwargs", '{"x": "é"}']
    options = read_serve_options(argv, ADDRESS, environ={"HOME": "/h", "PAGEWIRE_MAX_N": "3", "PAGEWIRE_CONFIG": ""})
    from pagewire.engine.config import read_config as read_engine
    from pagewire.frontend.config import read_config as read_frontend

    for environ, read, expected in (
        (options.engine_environ, read_engine, options.engine),
        (options.frontend_environ, read_frontend, options.frontend),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(os, "environ", environ)
            assert read([]) == expected
    assert "PAGEWIRE_API_KEY" not in options.engine_environ
    assert options.frontend_environ["HOME"] == "/h"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["demo", "--prt", "1"], "unknown option --prt (did you mean --port?)"),
        (["demo", "--port", "x"], "--port: expected an integer between 1 and 65535, got 'x'"),
        ([], "--model: required"),
        (["demo", "--endpoint", "ipc:///x"], "unknown option --endpoint"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(capsys, argv, words):
    with pytest.raises(SystemExit) as exit_info:
        read_serve_options(argv, ADDRESS, environ={})
    assert exit_info.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"pagewire serve: {words}")


def test_delays_grow_until_it_gives_up():
    policy = RestartPolicy()
    delays = [policy.next_delay(lived=1) for _ in range(MAX_QUICK_FAILURES + 1)]
    assert delays == [0.5, 1, 2, 4, 8, None]


def test_a_long_life_starts_a_new_count():
    policy = RestartPolicy()
    for _ in range(MAX_QUICK_FAILURES):
        policy.next_delay(lived=1)
    assert policy.next_delay(lived=QUICK_FAILURE_S + 1) == 0.5


@pytest.mark.parametrize(
    ("config", "base_url"),
    [
        (FrontendConfig(host="0.0.0.0", port=1), "http://127.0.0.1:1"),
        (FrontendConfig(host="::", port=1), "http://[::1]:1"),
        (FrontendConfig(root_path="/llm"), "http://127.0.0.1:8000/llm"),
        (FrontendConfig(uds="/tmp/x.sock"), "http://localhost"),
    ],
)
def test_the_frontend_is_reached_where_it_listens(config, base_url):
    assert Target(config).base_url == base_url


def test_the_request_to_paste_asks_for_a_key_instead_of_showing_it():
    line = Target(FrontendConfig(api_key=("s3cr3t",))).curl("toy")
    assert "s3cr3t" not in line
    assert '"Authorization: Bearer $PAGEWIRE_API_KEY"' in line


def test_the_request_to_paste_survives_quotes_in_a_model_name():
    words = shlex.split(Target(FrontendConfig()).curl("it's a model"))
    assert json.loads(words[-1])["model"] == "it's a model"
