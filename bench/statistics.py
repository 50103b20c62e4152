"""Percentiles, distributions and confidence: the few statistics a load test needs, on plain lists."""

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

from msgspec import Struct

# Two-sided 95% quantiles of Student's t, by degrees of freedom; beyond the table the normal distribution's.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_NORMAL95 = 1.96
# An interval from two values would be six times as wide as their distance: it tells nothing.
_MIN_FREEDOM = 2

CURVE_POINTS = 101


def percentile(ordered: Sequence[float], q: float) -> float:
    """Return the ``q``-th percentile (0 to 100) of values in ascending order, interpolating between neighbours."""
    if not ordered:
        raise ValueError("no values")
    rank = (len(ordered) - 1) * q / 100
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


class Distribution(Struct, frozen=True):
    """What is reported of many measurements of one quantity, in that quantity's unit."""

    count: int
    mean: float
    std: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def distribution(values: Sequence[float]) -> Distribution | None:
    """Summarize ``values``; None when there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return Distribution(
        count=len(ordered),
        mean=fmean(ordered),
        std=stdev(ordered) if len(ordered) > 1 else 0.0,
        min=ordered[0],
        p50=percentile(ordered, 50),
        p90=percentile(ordered, 90),
        p95=percentile(ordered, 95),
        p99=percentile(ordered, 99),
        max=ordered[-1],
    )


def curve(values: Sequence[float]) -> list[float]:
    """Return the whole percentile curve, percentile 0 to 100 in steps of one; empty without values."""
    ordered = sorted(values)
    return [percentile(ordered, q) for q in range(CURVE_POINTS)] if ordered else []


class Spread(Struct, frozen=True):
    """One figure over repeats. ``low`` and ``high``: 95% confidence interval of the mean."""

    count: int
    median: float
    mean: float
    min: float
    max: float
    low: float | None = None
    high: float | None = None


def spread(values: Sequence[float]) -> Spread:
    """Summarize the same figure from several repeats; raises ``statistics.StatisticsError`` without values."""
    mean = fmean(values)
    low = high = None
    freedom = len(values) - 1
    if freedom >= _MIN_FREEDOM:
        t = _T95[freedom - 1] if freedom <= len(_T95) else _NORMAL95
        margin = t * stdev(values) / math.sqrt(len(values))
        low, high = mean - margin, mean + margin
    return Spread(len(values), median(values), mean, min(values), max(values), low, high)
