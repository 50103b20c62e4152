"""Timing a piece of code that takes microseconds."""

import time
from collections.abc import Callable
from statistics import median

from msgspec import Struct

_BATCHES = 9
_BATCH_S = 0.03


class Measurement(Struct, frozen=True):
    """Microseconds per unit of work: the median over batches, which a busy machine disturbs, and the best batch."""

    name: str
    unit: str
    median_us: float
    best_us: float


def measure(name: str, unit: str, action: Callable[[], object], *, units: int = 1) -> Measurement:
    """Time ``action``, which does ``units`` units of work."""
    action()
    calls = 1
    while (taken := _time_calls(action, calls)) < _BATCH_S / 2:
        calls = max(2 * calls, int(calls * _BATCH_S / max(taken, 1e-9)))
    per_unit = [1e6 * _time_calls(action, calls) / calls / units for _ in range(_BATCHES)]
    return Measurement(name, unit, median(per_unit), min(per_unit))


def _time_calls(action: Callable[[], object], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        action()
    return time.perf_counter() - started
