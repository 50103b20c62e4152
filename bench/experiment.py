"""A whole measurement: levels of load, repeats, and servers taking turns.

With several servers every repeat runs them one after the other (A B A B), on the same prompts: on a machine that others
use too, only figures taken in turn may be compared.
"""

import asyncio
import itertools
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from statistics import median

from pagewire.bench.client import Client, Record, Target
from pagewire.bench.harness import HarnessMonitor
from pagewire.bench.metrics import latency_curves, summarize, timeline
from pagewire.bench.plan import Plan, level_label, make_plan
from pagewire.bench.progress import Progress, Snapshot
from pagewire.bench.report_text import run_line
from pagewire.bench.results import RecordWriter, Run, Settings, point
from pagewire.bench.runner import Talk, run_closed, run_open
from pagewire.bench.workloads import make_workload

_SNAPSHOT_INTERVAL_S = 0.5


async def run_experiment(
    targets: Sequence[Target], settings: Settings, progress: Progress, writer: RecordWriter | None = None
) -> list[Run]:
    """Measure every level on every server as often as asked; an interrupt ends it with the runs made so far."""
    runs: list[Run] = []
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client(target, settings.request)) for target in targets]
        for client in clients:
            await warm_up(client, settings, progress)
        for level, repeat in itertools.product(settings.load.levels, range(settings.load.repeats)):
            for client in clients:
                run, records = await run_once(client, settings, level, repeat, progress)
                runs.append(run)
                progress.say(run_line(run))
                if writer is not None:
                    writer.write(run, records)
                if run.interrupted:
                    return runs
    return runs


async def warm_up(client: Client, settings: Settings, progress: Progress) -> None:
    """Send requests that are not counted, with prompts (and shared prefixes) no measured request has."""
    load = settings.load
    if load.warmup == 0:
        return
    progress.say(f"{client.target.name}: warming up with {load.warmup} requests")
    workload = make_workload(settings.workload, f"{load.seed}/warm-up")
    talk = _talk(client, settings)
    concurrency = max(1, min(load.warmup, int(max(load.levels))))
    await run_closed(talk.converse, [workload.conversation(index) for index in range(load.warmup)], concurrency)
    failed = [record for record in talk.records if record.error is not None]
    if failed:
        progress.say(f"{client.target.name}: warm-up failed: {failed[0].error} {failed[0].error_text}")


async def run_once(
    client: Client, settings: Settings, level: float, repeat: int, progress: Progress
) -> tuple[Run, list[Record]]:
    """Measure one level once. Interrupted, it keeps what was finished, or raises when that is nothing."""
    plan = make_plan(settings, level, repeat)
    talk = _talk(client, settings)
    interrupted = False
    lateness: list[float] = []
    async with HarnessMonitor() as monitor:
        label = f"{client.target.name} {level_label(settings.load, level)}"
        shower = asyncio.create_task(_show(talk, label, plan.num_requests, progress))
        try:
            lateness = await _drive(talk, plan, settings, level)
        except asyncio.CancelledError:
            if not talk.finished():
                raise
            _go_on_after_interrupt()
            interrupted = True
        finally:
            shower.cancel()
    records = talk.finished()
    harness = monitor.report(lateness or [record.sent - record.planned for record in records])
    start = min(record.planned for record in records)
    run = Run(
        target=client.target.name,
        label=level_label(settings.load, level),
        load=level,
        repeat=repeat,
        summary=summarize(records, settings.service_level, fixed_length=settings.request.ignore_eos),
        harness=harness,
        timeline=timeline(records),
        curves=latency_curves(records),
        points=[point(record, start) for record in records],
        interrupted=interrupted,
    )
    return run, records


async def _drive(talk: Talk, plan: Plan, settings: Settings, level: float) -> list[float]:
    """Run the plan; returns how late (seconds) an open loop was, nothing for a closed one."""
    load = settings.load
    if plan.offsets is None:
        await run_closed(talk.converse, plan.conversations, int(level), duration_s=load.duration_s)
        return []
    arrivals = list(zip(plan.offsets, plan.conversations, strict=True))
    return await run_open(talk.converse, arrivals, max_in_flight=load.max_in_flight)


def _talk(client: Client, settings: Settings) -> Talk:
    return Talk(client.send, chat=settings.request.endpoint == "chat", think_time_s=settings.load.think_time_s)


def _go_on_after_interrupt() -> None:
    """Let the task report what it has: it is no longer asked to end."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


async def _show(talk: Talk, label: str, total: int | None, progress: Progress) -> None:
    started = time.perf_counter()
    while True:
        await asyncio.sleep(_SNAPSHOT_INTERVAL_S)
        finished = talk.finished()
        tokens = sum(len(record.token_times) for record in talk.records)
        waits = [record.first - record.planned for record in talk.records if record.first is not None]
        progress.show(
            Snapshot(
                label=label,
                done=len(finished),
                total=total,
                running=talk.running,
                errors=sum(record.error is not None for record in finished),
                output_rate=tokens / (time.perf_counter() - started),
                ttft_ms=1000 * median(waits) if waits else None,
            )
        )
