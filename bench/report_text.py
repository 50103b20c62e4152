"""Results as text for a terminal: a line per run, tables, and what the reader must be warned of."""

from collections.abc import Sequence
from statistics import median

from pagewire.bench.figures import FIGURES, Figure, compare_figure, values_of
from pagewire.bench.metrics import Summary
from pagewire.bench.results import Result, Run
from pagewire.bench.statistics import Distribution, spread


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, all others to the right."""
    table = [header, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    lines = []
    for row in table:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths).rstrip())
    return "\n".join(lines)


def format_number(value: float | None) -> str:
    """Write a figure with about four significant digits; a dash when there is none."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.2f}"


def median_and_range(values: Sequence[float], *, nothing: str = "-", between: str = "-") -> str:
    """Write the median of repeats with the smallest and the largest of them; ``nothing`` when there are none."""
    if not values:
        return nothing
    if len(values) == 1:
        return format_number(values[0])
    return f"{format_number(median(values))} ({format_number(min(values))}{between}{format_number(max(values))})"


def run_line(run: Run) -> str:
    """Say how one run went, in one line."""
    summary = run.summary
    parts = [f"{summary.completed}/{summary.requests} ok", f"{format_number(summary.output_rate)} tokens/s"]
    if summary.ttft_ms is not None:
        parts.append(f"TTFT p50 {format_number(summary.ttft_ms.p50)} p99 {format_number(summary.ttft_ms.p99)} ms")
    if summary.itl_ms is not None:
        parts.append(f"ITL p50 {format_number(summary.itl_ms.p50)} p99 {format_number(summary.itl_ms.p99)} ms")
    if summary.goodput is not None:
        parts.append(f"goodput {format_number(summary.goodput)} req/s")
    return f"{run.target} {run.label} #{run.repeat + 1}: " + ", ".join(parts)


def report_result(result: Result) -> str:
    """Write the whole result: every run, medians of repeats, ratios between servers, and warnings."""
    parts = []
    for label, runs in _by_label(result.runs).items():
        names = list(dict.fromkeys(run.target for run in runs))
        by_target = {name: [run for run in runs if run.target == name] for name in names}
        for name in names:
            parts.append(f"== {name}, {label}\n" + _target_report(by_target[name]))
        for name in names[1:]:
            parts.append(compare_runs(name, by_target[name], names[0], by_target[names[0]], label))
    return "\n\n".join(parts)


def _by_label(runs: Sequence[Run]) -> dict[str, list[Run]]:
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(run.label, []).append(run)
    return grouped


def _target_report(runs: Sequence[Run]) -> str:
    if len(runs) == 1:
        body = _summary_report(runs[0].summary)
    else:
        rows = [row for figure in FIGURES if (row := _spread_row(figure, runs))]
        header = ("median of repeats", "", "median", "min", "max", "95% of mean")
        body = format_table(header, rows)
    warnings = list(dict.fromkeys(warning for run in runs for warning in warnings_of(run)))
    return "\n".join([body, harness_line(runs), *(f"! {warning}" for warning in warnings)])


def _spread_row(figure: Figure, runs: Sequence[Run]) -> tuple[str, ...] | None:
    values = values_of(figure, runs)
    if not values:
        return None
    over = spread(values)
    interval = "-" if over.low is None else f"{format_number(over.low)} .. {format_number(over.high)}"
    numbers = (format_number(over.median), format_number(over.min), format_number(over.max))
    return (figure.name, figure.unit, *numbers, interval)


def _summary_report(summary: Summary) -> str:
    lines = [
        f"requests {summary.completed} of {summary.requests} in {summary.duration_s:.2f} s "
        f"({format_number(summary.request_rate)}/s), running {summary.mean_running:.1f} (peak {summary.peak_running})",
        f"tokens   {format_number(summary.output_rate)}/s out, {format_number(summary.prompt_rate)}/s in "
        f"({summary.output_tokens:,} out, {summary.prompt_tokens:,} in, {summary.cached_tokens:,} of them cached)",
    ]
    if summary.goodput is not None and summary.attainment is not None:
        lines.append(f"goodput  {format_number(summary.goodput)} req/s, {summary.attainment:.1%} of requests good")
    named = (("TTFT", summary.ttft_ms), ("ITL", summary.itl_ms), ("TPOT", summary.tpot_ms), ("E2E", summary.e2e_ms))
    rows = [(name, *_numbers(found)) for name, found in named if found is not None]
    return "\n".join(lines) + "\n\n" + format_table(("ms", "mean", "p50", "p90", "p95", "p99", "max"), rows)


def _numbers(found: Distribution) -> tuple[str, ...]:
    return tuple(map(format_number, (found.mean, found.p50, found.p90, found.p95, found.p99, found.max)))


def harness_line(runs: Sequence[Run]) -> str:
    """Say how the harness itself did, at its worst over the runs."""
    late = [run.harness.lateness_ms for run in runs if run.harness.lateness_ms is not None]
    lags = [run.harness.loop_lag_ms for run in runs if run.harness.loop_lag_ms is not None]
    return (
        f"harness: sent late by {_worst(late)} ms, event loop lag {_worst(lags)} ms (p50 / p99 / max), "
        f"CPU {max(run.harness.cpu for run in runs):.0%} of a core"
    )


def _worst(found: Sequence[Distribution]) -> str:
    if not found:
        return "-"
    return " / ".join(format_number(max(getattr(each, name) for each in found)) for name in ("p50", "p99", "max"))


def warnings_of(run: Run) -> list[str]:
    """Say everything that makes a run less than it seems: a slow harness, errors, miscounts, short answers."""
    summary = run.summary
    found = []
    if run.harness.problems:
        found.append(f"THE HARNESS WAS THE BOTTLENECK, do not trust this run: {'; '.join(run.harness.problems)}")
    if run.interrupted:
        found.append("interrupted: only requests that had ended are counted")
    for kind, count in summary.errors.items():
        found.append(f"{count} requests failed: {kind} {summary.error_examples.get(kind, '')}".rstrip())
    if summary.short:
        found.append(f"{summary.short} requests ended before their fixed length (does the server know ignore_eos?)")
    if summary.without_usage:
        found.append(f"{summary.without_usage} answers came without usage: their tokens were counted by events")
    if summary.miscounted:
        found.append(f"{summary.miscounted} answers had more events with output than the server counted tokens")
    return found


def compare_runs(base_name: str, base: Sequence[Run], other_name: str, other: Sequence[Run], label: str) -> str:
    """Write the ratios of one server to another at one level; a mark where every pair of repeats agrees."""
    rows = []
    for figure in FIGURES:
        ratio = compare_figure(figure, base, other)
        if ratio is not None:
            numbers = (format_number(ratio.base), format_number(ratio.other), f"{ratio.ratio:.3f}")
            rows.append((figure.name, figure.unit, *numbers, f"{ratio.low:.3f} .. {ratio.high:.3f}", ratio.verdict))
    header = ("medians", "", base_name, other_name, f"{other_name}/{base_name}", "range of pairs", "")
    return f"== {other_name} against {base_name}, {label}\n" + format_table(header, rows)
