"""The comparison as Markdown: what each server did, and which goals are reached."""

from collections.abc import Iterator, Sequence

from pagewire.bench.figures import Figure, compare_figure, figure_named, values_of
from pagewire.bench.peers.goals import GOALS, Goal
from pagewire.bench.report_text import median_and_range, warnings_of
from pagewire.bench.results import Run
from pagewire.bench.suite import PRESETS, Preset, runs_of


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a Markdown table; the first column holds words, the others numbers."""
    aligned = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, aligned, *rows))


def figures_table(runs: Sequence[Run]) -> str:
    """Write the median of each figure on each server, with the smallest and the largest of the repeats."""
    servers = list(dict.fromkeys(run.target for run in runs))
    rows = [
        [f"{preset.name.upper()} {preset.about}, {figure.name} ({figure.unit})"]
        + [
            median_and_range(values_of(figure, runs_of(runs, preset.name, server)), nothing="", between=" to ")
            for server in servers
        ]
        for preset, figure in _figures(runs)
    ]
    return markdown_table(["workload", *servers], rows)


def goals_table(runs: Sequence[Run]) -> str:
    """Write the ratio of medians behind each goal, and the smallest and the largest ratio of a pair of repeats."""
    rows = [row for goal in GOALS if (row := _goal_row(goal, runs))]
    return markdown_table(["goal", "ratio", "of pairs", "asked", "reached"], rows)


def warnings_list(runs: Sequence[Run]) -> str:
    """List everything that makes a run less than it seems, each kind once."""
    found = dict.fromkeys(f"- {run.target}, {run.label}: {text}" for run in runs for text in warnings_of(run))
    return "\n".join(found) or "- none"


def _figures(runs: Sequence[Run]) -> Iterator[tuple[Preset, Figure]]:
    for preset in PRESETS:
        if any(run.label.startswith(f"{preset.name}: ") for run in runs):
            yield from ((preset, figure_named(name)) for name in preset.figures)


def _goal_row(goal: Goal, runs: Sequence[Run]) -> list[str] | None:
    figure = figure_named(goal.figure)
    ratio = compare_figure(figure, runs_of(runs, goal.workload, goal.peer), runs_of(runs, goal.workload, goal.server))
    if ratio is None:
        return None
    reached = ratio.ratio >= goal.ratio if figure.higher_is_better else ratio.ratio <= goal.ratio
    asked = f"{'≥' if figure.higher_is_better else '≤'} {goal.ratio:g}"
    name = f"{goal.workload.upper()} {goal.figure}: {goal.server} / {goal.peer}"
    return [name, f"{ratio.ratio:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}", asked, "yes" if reached else "**no**"]
