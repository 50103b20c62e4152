"""Two saved results side by side."""

from collections.abc import Sequence

from pagewire.bench.report_text import compare_runs, warnings_of
from pagewire.bench.results import Result, Run


def compare_results(base: Result, other: Result, names: tuple[str, str]) -> str:
    """Write the ratios of two results, of their first servers, at every level both have.

    Raises ``ValueError`` when they have no level in common.
    """
    parts = []
    for label in dict.fromkeys(run.label for run in base.runs):
        before, after = _runs(base, label), _runs(other, label)
        if before and after:
            parts.append(compare_runs(names[0], before, names[1], after, label))
    if not parts:
        raise ValueError("the two results have no level of load in common")
    notes = [f"! {note}" for note in _differences(base, other)]
    for name, result in zip(names, (base, other), strict=True):
        notes += dict.fromkeys(f"! {name}: {warning}" for run in result.runs for warning in warnings_of(run))
    return "\n\n".join([*parts, "\n".join(notes)] if notes else parts)


def _runs(result: Result, label: str) -> Sequence[Run]:
    first = result.targets[0].name
    return [run for run in result.runs if run.target == first and run.label == label]


def _differences(base: Result, other: Result) -> list[str]:
    """Say what makes the comparison unequal."""
    notes = ["measured at different times: on a shared machine compare servers in turn, with --against"]
    if [each.workload for each in base.settings] != [each.workload for each in other.settings]:
        notes.append("the workloads differ")
    if [each.request for each in base.settings] != [each.request for each in other.settings]:
        notes.append("the requests differ in endpoint, streaming or other fields")
    if base.host != other.host:
        notes.append("the harness ran on different machines")
    return notes
