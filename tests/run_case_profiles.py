"""Runs a directory of black-box cases against every server profile that it describes.

The directory holds ``profiles.json`` (profile name to the flags it needs, in words, and maybe a template),
``cases.jsonl`` and ``run_cases.py``, which does the asking. One engine serves the demo model for all profiles but
``no_template``, which needs a model that carries none: a copy of the demo model, with its template's key renamed.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagewire.child import Child
from pagewire.engine.models.files import resolve_model
from pagewire.frontend.config import FrontendConfig
from pagewire.readiness import Target

API_KEY = "key-of-the-cases"
READY_TIMEOUT_S = 120
STOP_GRACE_S = 10
TEMPLATE_KEY = b"tokenizer.chat_template"


@dataclass(frozen=True)
class Run:
    """What the profiles of one invocation share."""

    cases: Path
    scratch: Path
    port: int
    runner_args: Sequence[str]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run black-box cases against every profile they describe.")
    parser.add_argument("directory", type=Path, help="holds run_cases.py, cases.jsonl and profiles.json")
    parser.add_argument("--profile", action="append", help="only this profile; may be repeated")
    parser.add_argument("--port", type=int, default=8399)
    options, runner_args = parser.parse_known_args()
    profiles = json.loads((options.directory / "profiles.json").read_text(encoding="utf-8"))
    chosen = {name: profiles[name] for name in options.profile or profiles}
    with tempfile.TemporaryDirectory(prefix="pagewire-cases-") as scratch:
        run = Run(options.directory, Path(scratch), options.port, runner_args)
        failed = asyncio.run(run_all(run, chosen))
    print(f"profiles with failures: {', '.join(failed)}" if failed else f"all {len(chosen)} profiles passed")
    return 1 if failed else 0


async def run_all(run: Run, profiles: dict[str, dict[str, Any]]) -> list[str]:
    """Run the profiles one after the other and return the names of those with a failed case."""
    failed = []
    with_template = {name: profile for name, profile in profiles.items() if name != "no_template"}
    if with_template:
        async with engine("demo", run) as address:
            failed += [name for name in with_template if not await run_profile(run, name, profiles[name], address)]
    if "no_template" in profiles:
        async with engine(str(model_without_template(run.scratch)), run) as address:
            if not await run_profile(run, "no_template", profiles["no_template"], address):
                failed.append("no_template")
    return failed


async def run_profile(run: Run, name: str, profile: dict[str, Any], address: str) -> bool:
    """Start a frontend as the profile says, run its cases, and say whether all passed."""
    flags = frontend_flags(profile, run.scratch / f"{name}.jinja")
    print(f"== {name}: pagewire-frontend {' '.join(flags)}", flush=True)
    keys = (API_KEY,) if "--api-key" in flags else ()
    target = Target(FrontendConfig(port=run.port, api_key=keys))
    command = ["pagewire.frontend.main", "--engine", address, "--port", str(run.port), *flags]
    async with program("frontend", command, run):
        await until_ready(target)
        model = await target.model_name()
        assert model, "the frontend names no model"
        asking = [str(run.cases / "run_cases.py"), "--base-url", target.base_url, "--model", model]
        asking += ["--cases", str(run.cases / "cases.jsonl"), "--profile", name, *run.runner_args]
        asking += ["--api-key", API_KEY] if keys else []
        return await (await asyncio.create_subprocess_exec(sys.executable, *asking)).wait() == 0


def frontend_flags(profile: dict[str, Any], template_file: Path) -> list[str]:
    """Turn a profile's words into flags; words that do not begin with a flag ask for none."""
    words = profile["args"].split(" (")[0].split()
    if not words[0].startswith("--"):
        return []
    if "literal" in words:
        return [words[0], profile["template"]]
    flag, placeholder = words
    if placeholder == "FILE":
        template_file.write_text(profile["template"], encoding="utf-8")
        return [flag, str(template_file)]
    return [flag, API_KEY if placeholder == "KEY" else placeholder]


def model_without_template(scratch: Path) -> Path:
    """Copy the demo model so that no loader finds its template."""
    content = resolve_model("demo").path.read_bytes()
    assert content.count(TEMPLATE_KEY) == 1
    copy = scratch / "no-template.gguf"
    copy.write_bytes(content.replace(TEMPLATE_KEY, b"x" * len(TEMPLATE_KEY)))
    return copy


@asynccontextmanager
async def engine(model: str, run: Run) -> AsyncIterator[str]:
    """Run an engine and yield its address; frontends wait for it to have loaded."""
    address = f"ipc://{run.scratch / 'socket' / 'engine'}"
    async with program("engine", ["pagewire.engine.main", model, "--endpoint", address], run):
        yield address


@asynccontextmanager
async def program(name: str, module_and_args: Sequence[str], run: Run) -> AsyncIterator[Child]:
    """Run one of the two programs; what it logs is shown if it does not stop by itself or fails."""
    lines: list[str] = []
    child = Child(name, [sys.executable, "-m", *module_and_args], os.environ, lines.append)
    await child.start()
    try:
        yield child
    except BaseException:
        print("\n".join(f"{name:<8} | {line}" for line in lines[-30:]), file=sys.stderr)
        raise
    finally:
        await child.stop(STOP_GRACE_S)


async def until_ready(target: Target) -> None:
    for _ in range(READY_TIMEOUT_S * 5):
        if await target.is_ready():
            return
        await asyncio.sleep(0.2)
    raise TimeoutError(f"not ready within {READY_TIMEOUT_S} s")


if __name__ == "__main__":
    sys.exit(main())
