"""Named workloads that together say how good a server is; the table they print is the one of the project's results."""

from collections.abc import Sequence

from msgspec import Struct

from pagewire.bench.client import RequestSettings, Target
from pagewire.bench.experiment import run_experiment
from pagewire.bench.figures import compare_figure, figure_named, values_of
from pagewire.bench.lengths import Lengths
from pagewire.bench.progress import Progress
from pagewire.bench.report_text import format_table, median_and_range, warnings_of
from pagewire.bench.results import LoadKind, LoadSettings, RecordWriter, Run, Settings
from pagewire.bench.workloads import WorkloadSettings


class Preset(Struct, frozen=True):
    """One workload of the suite: lengths in tokens, and the figures that count."""

    name: str
    about: str
    input_tokens: int
    output_tokens: int
    kind: LoadKind
    level: float
    requests: int
    figures: tuple[str, ...]
    shared_prefix: int = 0


PRESETS = (
    Preset("w1", "one stream", 128, 128, "closed", 1, 6, ("output tokens/s",)),
    Preset("w2-32", "64 requests, 32 at once", 256, 128, "closed", 32, 64, ("output tokens/s", "ITL p99")),
    Preset("w2-64", "64 requests, 64 at once", 256, 128, "closed", 64, 64, ("output tokens/s", "ITL p99")),
    Preset("w3", "long prompt, one at a time", 2048, 16, "closed", 1, 6, ("TTFT p50",)),
    Preset("w4", "32 requests, shared prefix", 64, 64, "closed", 16, 32, ("total time",), shared_prefix=1024),
    Preset("w5", "Poisson arrivals", 256, 64, "open", 2, 60, ("TTFT p50", "ITL p50", "ITL p99")),
)


def choose_presets(names: Sequence[str]) -> list[Preset]:
    """Return the presets whose names begin with one of ``names`` (``w2`` is both of them); all without names.

    Raises ``ValueError`` for a name that fits none.
    """
    for name in names:
        if not any(preset.name.startswith(name) for preset in PRESETS):
            raise ValueError(f"no workload {name!r}; there are {', '.join(preset.name for preset in PRESETS)}")
    return [preset for preset in PRESETS if not names or any(preset.name.startswith(name) for name in names)]


def preset_settings(
    preset: Preset, request: RequestSettings, repeats: int, seed: int, token_range: tuple[int, int]
) -> Settings:
    """Turn a preset into the settings of a measurement."""
    return Settings(
        LoadSettings(
            name=preset.name,
            kind=preset.kind,
            levels=[preset.level],
            requests=preset.requests,
            repeats=repeats,
            seed=seed,
            warmup=min(4, int(preset.level)),
        ),
        WorkloadSettings(
            Lengths("fixed", preset.input_tokens),
            Lengths("fixed", preset.output_tokens),
            shared_prefix=preset.shared_prefix,
            token_range=token_range,
        ),
        request,
    )


async def run_suite(
    targets: Sequence[Target], settings: Sequence[Settings], progress: Progress, writer: RecordWriter | None = None
) -> list[Run]:
    """Run workloads one after the other, the servers in turn within each."""
    runs: list[Run] = []
    for each in settings:
        progress.say(f"-- {each.load.name}")
        runs += await run_experiment(targets, each, progress, writer)
        if any(run.interrupted for run in runs):
            break
    return runs


def report_suite(presets: Sequence[Preset], targets: Sequence[Target], runs: Sequence[Run]) -> str:
    """Write the table: medians of each server with their range, and how the first one compares with each other one."""
    first, *others = [target.name for target in targets]
    header = ["workload", "figure", "unit", first, *others, *(f"{first}/{name}" for name in others)]
    rows = []
    for preset in presets:
        for figure in map(figure_named, preset.figures):
            by_target = {name: runs_of(runs, preset.name, name) for name in (first, *others)}
            row = [f"{preset.name} {preset.about}", figure.name, figure.unit]
            row += [median_and_range(values_of(figure, by_target[name])) for name in by_target]
            ratios = [compare_figure(figure, by_target[name], by_target[first]) for name in others]
            row += ["-" if ratio is None else f"{ratio.ratio:.3f}" for ratio in ratios]
            rows.append(row)
    warnings = dict.fromkeys(f"! {run.target} {run.label}: {text}" for run in runs for text in warnings_of(run))
    return "\n".join([format_table(header, rows), *warnings])


def runs_of(runs: Sequence[Run], workload: str, target: str) -> list[Run]:
    """Return the repeats of a workload (a preset's name) on a server, in order."""
    return [run for run in runs if run.target == target and run.label.startswith(f"{workload}: ")]
