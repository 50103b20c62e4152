"""Measuring with vLLM's own client: what it is told to do."""

from argparse import Namespace
from pathlib import Path

from pagewire.bench.peers.confirm import LOADS, _command
from pagewire.bench.peers.processes import ServerSpec


def test_no_server_sees_a_prompt_twice() -> None:
    spec = ServerSpec("pagewire", (), 1)
    args = Namespace(requests=None, output=Path("out"))
    commands = [_command(load, spec, repeat, Path("peers"), args) for load in LOADS for repeat in range(3)]
    assert len({command[command.index("--seed") + 1] for command in commands}) == len(commands)
