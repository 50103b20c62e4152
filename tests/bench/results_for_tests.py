"""Results made of numbers instead of servers."""

from pagewire.bench.client import Record, RequestSettings, Target
from pagewire.bench.harness import HarnessReport
from pagewire.bench.lengths import parse_lengths
from pagewire.bench.metrics import latency_curves, summarize, timeline
from pagewire.bench.results import LoadSettings, Result, Run, Settings, make_result, point
from pagewire.bench.workloads import WorkloadSettings
from tests.bench.records import make_record

SETTINGS = Settings(
    LoadSettings(kind="closed", levels=[1.0, 16.0]),
    WorkloadSettings(parse_lengths("10"), parse_lengths("3")),
    RequestSettings(),
)


def make_run(target: str, ttft_s: float, *, load: float = 1.0, repeat: int = 0, problems: tuple[str, ...] = ()) -> Run:
    """A run of three requests, each with the given time to first token and two more tokens 10 ms apart."""
    starts = [0.0, 1.0, 2.0]
    records: list[Record] = [make_record(at, [at + ttft_s, at + ttft_s + 0.01, at + ttft_s + 0.02]) for at in starts]
    return Run(
        target=target,
        label=f"concurrency {load:g}",
        load=load,
        repeat=repeat,
        summary=summarize(records),
        harness=HarnessReport(None, None, 0.1, list(problems)),
        timeline=timeline(records),
        curves=latency_curves(records),
        points=[point(record, 0.0) for record in records],
    )


def result_of(runs: list[Run]) -> Result:
    """A result with the servers of its runs, in their order."""
    names = dict.fromkeys(run.target for run in runs)
    targets = [Target(name, f"http://{name}", "m") for name in names]
    return make_result(targets, [SETTINGS], runs, ["bench", "run"])
