"""Finds the highest load that holds a service level: doubling until it breaks, then bisection."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from pagewire.bench.client import Client
from pagewire.bench.experiment import run_once
from pagewire.bench.progress import Progress
from pagewire.bench.report_text import run_line
from pagewire.bench.results import RecordWriter, Run, Settings

# The search gives up this far below where it began.
_LOWEST = 64

Probe = Callable[[float], Awaitable[bool]]


class SweepSettings(Struct, frozen=True):
    """Where to look. ``precision`` is the ratio between the bounds at which the search ends, minus one.

    ``attainment`` is the share of requests that must be good (a failed request is not). ``whole`` looks at whole
    numbers only.
    """

    start: float
    limit: float
    precision: float = 0.1
    attainment: float = 0.95
    whole: bool = False


async def search(probe: Probe, settings: SweepSettings) -> float | None:
    """Return the highest level that holds, to the precision asked; None when not even a small one does.

    ``probe`` tells whether a level holds; a level above one that does not hold is never tried.
    """
    low: float | None = None
    high = min(settings.start, settings.limit)
    while await probe(high):
        if high >= settings.limit:
            return high
        low, high = high, min(2 * high, settings.limit)
    while low is None:
        lower = _rounded(high / 2, settings)
        if lower < settings.start / _LOWEST or lower == 0:
            return None
        if await probe(lower):
            low = lower
        else:
            high = lower
    while high / low > 1 + settings.precision:
        middle = _rounded((low * high) ** 0.5, settings)
        if middle in (low, high):
            break
        if await probe(middle):
            low = middle
        else:
            high = middle
    return low


def _rounded(level: float, settings: SweepSettings) -> float:
    return float(round(level)) if settings.whole else float(f"{level:.3g}")


def holds(run: Run, attainment: float) -> bool:
    """Tell whether enough of a run's requests were good."""
    return (run.summary.attainment or 0.0) >= attainment


async def run_sweep(
    client: Client, settings: Settings, sweep: SweepSettings, progress: Progress, writer: RecordWriter | None = None
) -> tuple[float | None, list[Run]]:
    """Search on a server; returns the highest level that holds, and every run made on the way."""
    runs: list[Run] = []

    async def probe(level: float) -> bool:
        run, records = await run_once(client, settings, level, len(runs), progress)
        runs.append(run)
        if writer is not None:
            writer.write(run, records)
        held = holds(run, sweep.attainment)
        progress.say(f"{run_line(run)}: {'holds' if held else 'does not hold'}")
        return held

    return await search(probe, sweep), runs
