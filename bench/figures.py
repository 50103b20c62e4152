"""The figures that reports and comparisons show, and how they compare: one list for all of them."""

from collections.abc import Callable, Sequence
from statistics import median

from msgspec import Struct

from pagewire.bench.metrics import Summary
from pagewire.bench.results import Run
from pagewire.bench.statistics import Distribution


class Figure(Struct, frozen=True):
    """One number of a summary. ``higher_is_better`` tells which way a ratio is good."""

    name: str
    unit: str
    value: Callable[[Summary], float | None]
    higher_is_better: bool = False


def _of(name: str, statistic: str) -> Callable[[Summary], float | None]:
    def value(summary: Summary) -> float | None:
        found: Distribution | None = getattr(summary, name)
        return None if found is None else float(getattr(found, statistic))

    return value


FIGURES = (
    Figure("output tokens/s", "tok/s", lambda summary: summary.output_rate, higher_is_better=True),
    Figure("prompt tokens/s", "tok/s", lambda summary: summary.prompt_rate, higher_is_better=True),
    Figure("requests/s", "req/s", lambda summary: summary.request_rate, higher_is_better=True),
    Figure("goodput", "req/s", lambda summary: summary.goodput, higher_is_better=True),
    Figure("total time", "s", lambda summary: summary.duration_s),
    Figure("TTFT p50", "ms", _of("ttft_ms", "p50")),
    Figure("TTFT p99", "ms", _of("ttft_ms", "p99")),
    Figure("ITL p50", "ms", _of("itl_ms", "p50")),
    Figure("ITL p99", "ms", _of("itl_ms", "p99")),
    Figure("TPOT p50", "ms", _of("tpot_ms", "p50")),
    Figure("TPOT p99", "ms", _of("tpot_ms", "p99")),
    Figure("E2E p50", "ms", _of("e2e_ms", "p50")),
    Figure("E2E p99", "ms", _of("e2e_ms", "p99")),
)
# Smaller differences are not called better or worse, however well the repeats agree.
_MIN_EFFECT = 0.02
_BY_NAME = {figure.name: figure for figure in FIGURES}


def figure_named(name: str) -> Figure:
    """Return a figure by its name; raises ``KeyError`` for one there is not."""
    return _BY_NAME[name]


def values_of(figure: Figure, runs: Sequence[Run]) -> list[float]:
    """Return the figure of each run that has it, in order."""
    return [value for run in runs if (value := figure.value(run.summary)) is not None]


class Ratio(Struct, frozen=True):
    """A figure of two servers: medians over repeats, the ratio of them, and its range over paired repeats."""

    figure: Figure
    base: float
    other: float
    ratio: float
    low: float
    high: float
    pairs: int

    @property
    def verdict(self) -> str:
        """Say ``better`` or ``worse`` where all of several pairs agree on it by more than noise, else nothing."""
        if self.pairs < 2:
            return ""
        higher, lower = self.low > 1 + _MIN_EFFECT, self.high < 1 - _MIN_EFFECT
        if not higher and not lower:
            return ""
        return "better" if higher == self.figure.higher_is_better else "worse"


def compare_figure(figure: Figure, base: Sequence[Run], other: Sequence[Run]) -> Ratio | None:
    """Compare one figure; the n-th runs of both sides are a pair. None when a side lacks it or is zero."""
    ours, theirs = values_of(figure, base), values_of(figure, other)
    if not ours or not theirs or min(ours) <= 0:
        return None
    ratio = median(theirs) / median(ours)
    pairs = [after / before for before, after in zip(ours, theirs, strict=False)]
    return Ratio(figure, median(ours), median(theirs), ratio, min(pairs), max(pairs), len(pairs))
