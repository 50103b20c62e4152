import socket
import sys
from pathlib import Path

import pytest

from pagewire.bench.peers.processes import ServerFailed, ServerProcess, ServerSpec, running, weigh

LINGERING = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
)
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LINGERING!r}])"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def python_spec(name: str, *arguments: str) -> ServerSpec:
    return ServerSpec(name, (sys.executable, *arguments), free_port())


def stub_spec(name: str) -> ServerSpec:
    port = free_port()
    return ServerSpec(name, (sys.executable, "-m", "pagewire.cli", "bench", "stub", "--port", str(port)), port)


def test_servers_are_ready_when_they_run_and_gone_afterwards(tmp_path: Path) -> None:
    with running([stub_spec("one")], tmp_path) as (server,):
        weight = weigh([server], idle_s=0.1)["one"]
        assert weight.start_s > 0
        assert 5 < weight.memory_mb < 500
        assert server.cpu_s() > 0
    assert server.memory_mb() == 0
    assert "stub at http" in (tmp_path / "one.log").read_text("utf-8")


def test_a_server_that_ends_is_reported_with_its_last_words(tmp_path: Path) -> None:
    spec = python_spec("broken", "-c", "raise SystemExit('no such model')")
    with pytest.raises(ServerFailed, match="broken ended with status 1:\nno such model"), running([spec], tmp_path):
        pass


def test_stopping_ends_children_that_do_not_end_with_their_parent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = ServerProcess(python_spec("parent", "-c", PARENT), log)
    while "up" not in log.read_text("utf-8"):
        pass
    assert server.memory_mb() > 0
    server.stop(grace_s=0.3)
    assert server.memory_mb() == 0
