"""The harness watching itself: was it on time, and did it have the CPU it needed?

A load test whose client was slow reports the client. So lateness of sends, lag of the event loop and CPU use are
measured in every run, and a run they could have spoiled says so.
"""

import asyncio
import gc
import time
from collections.abc import Sequence
from types import TracebackType

from msgspec import Struct

from pagewire.bench.statistics import Distribution, distribution

# Every timestamp may be late by as much as the loop lags; these are where that begins to matter beside latencies of
# tens of milliseconds.
_MAX_LATENESS_P99_MS = 10.0
_MAX_LAG_P99_MS = 20.0
# Beyond this share of one core, queues form inside a single-threaded client.
_MAX_CPU = 0.85

_PROBE_INTERVAL_S = 0.01


class HarnessReport(Struct, frozen=True):
    """How well the harness did. ``cpu`` is its share of one core; ``problems`` says in words what was too slow."""

    lateness_ms: Distribution | None
    loop_lag_ms: Distribution | None
    cpu: float
    problems: list[str]


class HarnessMonitor:
    """Measures the event loop's lag and the process's CPU time while it is entered.

    It also keeps the garbage collector from walking over what was prepared before the run.
    """

    def __init__(self) -> None:
        """Start with nothing measured."""
        self._lags: list[float] = []

    async def __aenter__(self) -> "HarnessMonitor":
        """Begin to measure."""
        gc.collect()
        gc.freeze()
        self._started, self._cpu_started = time.perf_counter(), time.process_time()
        self._probe = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop measuring."""
        self._wall = time.perf_counter() - self._started
        self._cpu = time.process_time() - self._cpu_started
        self._probe.cancel()
        gc.unfreeze()

    async def _watch(self) -> None:
        while True:
            due = time.perf_counter() + _PROBE_INTERVAL_S
            await asyncio.sleep(_PROBE_INTERVAL_S)
            self._lags.append(max(0.0, time.perf_counter() - due))

    def report(self, lateness_s: Sequence[float]) -> HarnessReport:
        """Judge the run, given by how many seconds each request was sent after it was due."""
        lateness = distribution([1000 * value for value in lateness_s])
        lag = distribution([1000 * value for value in self._lags])
        cpu = self._cpu / self._wall if self._wall > 0 else 0.0
        return HarnessReport(lateness, lag, cpu, find_problems(lateness, lag, cpu))


def find_problems(lateness_ms: Distribution | None, loop_lag_ms: Distribution | None, cpu: float) -> list[str]:
    """Say in words what makes the harness a suspect; empty when it kept up."""
    problems = []
    if lateness_ms is not None and lateness_ms.p99 > _MAX_LATENESS_P99_MS:
        problems.append(f"requests were sent late (p99 {lateness_ms.p99:.1f} ms, limit {_MAX_LATENESS_P99_MS:g} ms)")
    if loop_lag_ms is not None and loop_lag_ms.p99 > _MAX_LAG_P99_MS:
        problems.append(f"its event loop lagged (p99 {loop_lag_ms.p99:.1f} ms, limit {_MAX_LAG_P99_MS:g} ms)")
    if cpu > _MAX_CPU:
        problems.append(f"it used {cpu:.0%} of a core (limit {_MAX_CPU:.0%})")
    return problems
