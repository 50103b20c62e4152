"""Runs a client's driver against a server and reads its report."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import InstallError, node_with_clients, python_with

DRIVER_TIMEOUT_S = 300
Report = dict[str, Any]


def command_of(driver: Path, client: str, *, above_ours: bool = False) -> list[str]:
    """What starts a driver of a Python client, which is installed first if need be."""
    try:
        return [str(python_with(client, above_ours=above_ours)), str(driver)]
    except InstallError as error:
        pytest.fail(str(error), pytrace=False)


def command_on_node(driver: str) -> list[str]:
    """What starts a driver on Node."""
    try:
        return ["node", str(node_with_clients() / driver)]
    except InstallError as error:
        pytest.fail(str(error), pytrace=False)


def drive(command: Sequence[str], task: dict[str, Any]) -> Report:
    """Give a driver its task; the last line it writes is its report. What a client could not do fails the test."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "ANTHROPIC_", "LLM_"))}
    ended = subprocess.run(
        command,
        input=json.dumps(task),
        capture_output=True,
        text=True,
        timeout=DRIVER_TIMEOUT_S,
        # The server is on this machine, whatever the way to others is.
        env=kept | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
    )
    if ended.returncode:
        pytest.fail(f"{command[-1]} failed:\n{ended.stderr[-4000:]}", pytrace=False)
    report: Report = json.loads(ended.stdout.splitlines()[-1])
    if report["failures"]:
        pytest.fail("\n".join(f"{way}: {why}" for way, why in report["failures"].items()), pytrace=False)
    return report
