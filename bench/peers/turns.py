"""Servers taking turns on the same workloads, with a silence before each turn."""

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import AsyncExitStack

from pagewire.bench.client import Client, RequestSettings
from pagewire.bench.experiment import run_once, warm_up
from pagewire.bench.options import find_targets
from pagewire.bench.peers.processes import ServerSpec
from pagewire.bench.progress import Progress
from pagewire.bench.report_text import run_line
from pagewire.bench.results import Run, Settings

# vLLM's worker keeps a core busy for a second after its last step, in which it would slow whoever comes next.
SETTLE_S = 2.0


async def take_turns(specs: Sequence[ServerSpec], settings: Sequence[Settings], progress: Progress) -> list[Run]:
    """Measure each of ``settings``, repeat by repeat, on every server (A B A B); an interrupt ends it early."""
    targets = await find_targets([f"{spec.name}={spec.url}" for spec in specs], None, RequestSettings())
    runs: list[Run] = []
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(Client(target, _request_settings(spec)))
            for target, spec in zip(targets, specs, strict=True)
        ]
        for each in settings:
            for client in clients:
                await warm_up(client, each, progress)
            (level,) = each.load.levels
            for repeat, client in itertools.product(range(each.load.repeats), clients):
                await asyncio.sleep(SETTLE_S)
                run, _ = await run_once(client, each, level, repeat, progress)
                progress.say(run_line(run))
                runs.append(run)
                if run.interrupted:
                    return runs
    return runs


def _request_settings(spec: ServerSpec) -> RequestSettings:
    return RequestSettings(headers={} if spec.keeps_alive else {"Connection": "close"})
