"""A result as one HTML file that can be sent to anyone: tables and plots, nothing loaded from anywhere."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from statistics import median

from pagewire.bench.figures import FIGURES, compare_figure, figure_named, values_of
from pagewire.bench.report_text import format_number, harness_line, warnings_of
from pagewire.bench.results import Result, Run
from pagewire.bench.svg import COLOURS, Series, draw_chart

# Runs beyond these are in the tables, and in the result, but get no timeline or curve of their own.
_MAX_TIMELINES = 12
_MAX_CURVES = COLOURS
# Where the highest value is this many times the median, a linear axis would show a flat line and a spike.
_LOG_ABOVE = 20.0
# Levels this far apart are drawn on a logarithmic axis.
_LOG_LOADS_FROM = 8

# Repeats: runs by level of load and server.
Groups = dict[tuple[str, str], list[Run]]


def render_report(result: Result) -> str:
    """Write the page."""
    sections = [
        _facts(result),
        _warnings(result.runs),
        _section("Figures", *_tables(result)),
        _section("Latency and throughput against load", *_load_charts(result)),
        _section("Percentiles", *_curve_charts(result)),
        _section("Over time", *_timelines(result)),
    ]
    title = f"{' and '.join(target.name for target in result.targets)}: load test"
    style = files("pagewire.bench").joinpath("report.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style}</style></head>'
        f"<body><h1>{escape(title)}</h1>{''.join(sections)}</body></html>\n"
    )


def _section(title: str, *parts: str) -> str:
    body = "".join(parts)
    return f"<h2>{escape(title)}</h2>{body}" if body else ""


def _facts(result: Result) -> str:
    facts = [(target.name, f"{target.model} at {target.url}") for target in result.targets]
    facts += [("measured", result.created), ("command", f"pagewire {' '.join(result.command)}")]
    facts.append(("machine", f"{result.host.name}, {result.host.cores} cores, {result.host.system}"))
    if result.runs:
        facts.append(("harness", harness_line(result.runs).removeprefix("harness: ")))
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts)
    return f'<table class="facts">{rows}</table>'


def _warnings(runs: Sequence[Run]) -> str:
    found = dict.fromkeys(f"{run.target}, {run.label}: {text}" for run in runs for text in warnings_of(run))
    if not found:
        return ""
    return f'<ul class="warnings">{"".join(f"<li>{escape(text)}</li>" for text in found)}</ul>'


def _groups(result: Result) -> Groups:
    """Group repeats: runs by level of load and server, in the order they were made."""
    groups: Groups = {}
    for run in result.runs:
        groups.setdefault((run.label, run.target), []).append(run)
    return groups


def _tables(result: Result) -> Iterable[str]:
    groups = _groups(result)
    names = [target.name for target in result.targets]
    for label in dict.fromkeys(label for label, _ in groups):
        by_target = {name: groups[label, name] for name in names if (label, name) in groups}
        yield f'<div class="level"><h3>{escape(label)}</h3>{_table(by_target)}</div>'


def _table(by_target: dict[str, list[Run]]) -> str:
    """Medians of repeats, their range below, and how the first server compares with each of the others."""
    first, *others = by_target
    heads = ["", *by_target, *(f"{first} / {name}" for name in others)]
    rows = []
    for figure in FIGURES:
        values = {name: values_of(figure, runs) for name, runs in by_target.items()}
        if not any(values.values()):
            continue
        cells = [f"<th>{figure.name} <span class=unit>{figure.unit}</span></th>"]
        cells += [f"<td>{_median_cell(found)}</td>" for found in values.values()]
        for name in others:
            ratio = compare_figure(figure, by_target[name], by_target[first])
            text = "-" if ratio is None else f"{ratio.ratio:.3f}{_range(ratio.low, ratio.high, ratio.pairs, '.3f')}"
            cells.append(f'<td class="{"" if ratio is None else ratio.verdict}">{text}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    return f'<table class="figures"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _median_cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    shown = format_number(median(values))
    return (
        shown
        if len(values) == 1
        else f"{shown}<small>{format_number(min(values))} - {format_number(max(values))}</small>"
    )


def _range(low: float, high: float, count: int, form: str) -> str:
    return f"<small>{low:{form}} - {high:{form}}</small>" if count > 1 else ""


def _load_charts(result: Result) -> Iterable[str]:
    """Draw medians over repeats against the level, for each server: only where one load has several levels."""
    groups = _groups(result)
    if len(result.settings) > 1 or len({runs[0].load for runs in groups.values()}) < 2:
        return
    kind = result.settings[0].load.kind
    x_label = {"closed": "requests at once", "open": "requests per second", "trace": "speed"}[kind]
    charts = (
        ("Output tokens per second", "tok/s", ("output tokens/s",)),
        ("Time to first token", "ms", ("TTFT p50", "TTFT p99")),
        ("Inter-token latency", "ms", ("ITL p50", "ITL p99")),
        ("End to end", "ms", ("E2E p50", "E2E p99")),
        ("Goodput", "req/s", ("goodput",)),
    )
    for title, unit, names in charts:
        series = _load_series(result, groups, names)
        loads = [x for each in series for x, _ in each.points]
        wide = bool(loads) and max(loads) >= _LOG_LOADS_FROM * min(loads)
        yield draw_chart(series, title=title, x_label=x_label, y_label=unit, log_x=wide, log_y=_is_skewed(series))


def _load_series(result: Result, groups: Groups, names: Sequence[str]) -> list[Series]:
    """Return a line per server and figure; servers differ in colour, figures in dashes."""
    series = []
    for colour, target in enumerate(result.targets):
        for number, name in enumerate(names):
            points = [
                (runs[0].load, median(values))
                for (_, owner), runs in groups.items()
                if owner == target.name and (values := values_of(figure_named(name), runs))
            ]
            shown = name if len(result.targets) == 1 else f"{target.name} {name}"
            series.append(Series(shown, sorted(points), colour % COLOURS, dashed=number > 0))
    return series


def _is_skewed(series: Sequence[Series]) -> bool:
    values = [y for each in series for _, y in each.points]
    return bool(values) and min(values) > 0 and max(values) > _LOG_ABOVE * median(values)


def _curve_charts(result: Result) -> Iterable[str]:
    """Draw the percentile curves of the first repeat of each level and server."""
    groups = list(_groups(result).items())[:_MAX_CURVES]
    titles = (
        ("ttft", "Time to first token"),
        ("itl", "Inter-token latency"),
        ("tpot", "Time per output token"),
        ("e2e", "End to end"),
    )
    for key, title in titles:
        series = [
            Series(f"{target} {label}", list(enumerate(runs[0].curves.get(key, []))), colour)
            for colour, ((label, target), runs) in enumerate(groups)
        ]
        yield draw_chart(series, title=title, x_label="percentile", y_label="ms", log_y=_is_skewed(series))


def _timelines(result: Result) -> Iterable[str]:
    for (label, target), runs in list(_groups(result).items())[:_MAX_TIMELINES]:
        run = runs[0]
        width = run.timeline.bin_s
        times = [width * (number + 0.5) for number in range(len(run.timeline.running))]
        first = [(each.planned_s, each.ttft_ms) for each in run.points if each.ttft_ms is not None]
        charts = (
            ("Requests running", "", [Series("running", list(zip(times, run.timeline.running, strict=True)))]),
            (
                "Output tokens per second",
                "tok/s",
                [Series("output", list(zip(times, run.timeline.output_rate, strict=True)))],
            ),
            ("Time to first token of each request", "ms", [Series("TTFT", first, mark="dots")]),
            ("Failures per second", "", _failures(run, times)),
        )
        drawn = [draw_chart(series, title=title, x_label="seconds", y_label=unit) for title, unit, series in charts]
        yield f'<h3>{escape(target)}, {escape(label)}</h3><div class="timeline">{"".join(drawn)}</div>'


def _failures(run: Run, times: Sequence[float]) -> list[Series]:
    if not run.summary.errors:
        return []
    return [Series("failures", list(zip(times, run.timeline.error_rate, strict=True)), colour=3)]
