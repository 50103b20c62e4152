"""The JSON result of a measurement, and reading it back."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from pagewire.bench.arrivals import ArrivalKind
from pagewire.bench.client import Record, RequestSettings, Target
from pagewire.bench.harness import HarnessReport
from pagewire.bench.metrics import ServiceLevel, Summary, Timeline, latency
from pagewire.bench.workloads import WorkloadSettings

LoadKind = Literal["closed", "open", "trace"]

FORMAT = "pagewire-bench/1"


class LoadSettings(Struct, frozen=True):
    """How hard to press. ``levels`` are concurrencies (closed), requests per second (open) or speeds (trace).

    ``name`` tells this load from others in the same result. Without ``requests`` and ``duration_s`` a level gets a
    number of requests that suits it. ``repeats`` have prompts of their own each, so that no repeat finds the one before
    it in a prefix cache.
    """

    kind: LoadKind
    levels: list[float]
    name: str = ""
    arrivals: ArrivalKind = "poisson"
    burstiness: float = 1.0
    end_rate: float | None = None
    max_in_flight: int | None = None
    requests: int | None = None
    duration_s: float | None = None
    warmup: int = 4
    repeats: int = 1
    seed: int = 0
    think_time_s: float = 0.0


class Settings(Struct, frozen=True):
    """Everything that decides what a measurement does, apart from the servers."""

    load: LoadSettings
    workload: WorkloadSettings
    request: RequestSettings
    service_level: ServiceLevel | None = None


class Point(Struct, array_like=True, frozen=True):
    """One request in a result: seconds from the start of the run, milliseconds, tokens."""

    planned_s: float
    ttft_ms: float | None
    e2e_ms: float | None
    prompt_tokens: int | None
    output_tokens: int
    error: str | None


class Run(Struct, frozen=True):
    """One level of load on one server, once. ``curves`` hold percentile 0 to 100 of each latency in milliseconds."""

    target: str
    label: str
    load: float
    repeat: int
    summary: Summary
    harness: HarnessReport
    timeline: Timeline
    curves: dict[str, list[float]]
    points: list[Point]
    interrupted: bool = False


class Host(Struct, frozen=True):
    """The machine the harness ran on."""

    name: str
    system: str
    cores: int
    python: str


class Result(Struct, frozen=True):
    """A whole measurement: ``runs`` in the order they were made, by each of ``settings`` in turn.

    The first target is the one that is compared with the others.
    """

    format: str
    created: str
    command: list[str]
    host: Host
    targets: list[Target]
    settings: list[Settings]
    runs: list[Run]


def make_result(
    targets: Sequence[Target], settings: Sequence[Settings], runs: Sequence[Run], command: Sequence[str]
) -> Result:
    """Put a result together; keys and headers, which may be secret, are left out of it."""
    return Result(
        format=FORMAT,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=_without_secrets(command),
        host=Host(platform.node(), platform.platform(), os.cpu_count() or 1, platform.python_version()),
        targets=list(targets),
        settings=[_without_headers(each) for each in settings],
        runs=list(runs),
    )


def _without_headers(settings: Settings) -> Settings:
    return msgspec.structs.replace(settings, request=msgspec.structs.replace(settings.request, headers={}))


def _without_secrets(arguments: Sequence[str]) -> list[str]:
    shown, hide = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        secret = name in ("--api-key", "--header")
        shown.append("***" if hide else f"{name}=***" if secret and equals else argument)
        hide = secret and not equals
    return shown


def point(record: Record, start: float) -> Point:
    """Reduce a record to what a result keeps of it; ``start`` is the start of its run."""
    times = latency(record) if record.error is None else None
    return Point(
        planned_s=round(record.planned - start, 6),
        ttft_ms=None if times is None else times.ttft_ms,
        e2e_ms=None if times is None else times.e2e_ms,
        prompt_tokens=record.prompt_tokens,
        output_tokens=record.output_tokens,
        error=record.error,
    )


def save_result(result: Result, path: str) -> None:
    """Write a result as indented JSON."""
    Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))


def load_result(path: str) -> Result:
    """Read a result; raises ``ValueError`` saying why a file is not one."""
    try:
        result = msgspec.json.decode(Path(path).read_bytes(), type=Result)
    except (OSError, msgspec.MsgspecError) as error:
        raise ValueError(f"{path} is not a result of pagewire bench: {error}") from None
    if result.format != FORMAT:
        raise ValueError(f"{path} has format {result.format!r}; this version reads {FORMAT!r}")
    return result


class RecordWriter:
    """Writes every record of every run as a line of JSON: all times, without the text."""

    def __init__(self, path: str) -> None:
        """Open the file and empty it."""
        self._file = Path(path).open("wb")  # noqa: SIM115 - closed by close()

    def write(self, run: Run, records: Sequence[Record]) -> None:
        """Append the records of a run, their times relative to its start in seconds."""
        start = min(record.planned for record in records)
        for record in records:
            fields: dict[str, Any] = msgspec.structs.asdict(record)
            del fields["text"]
            for name in ("planned", "sent", "end"):
                fields[name] -= start
            fields["token_times"] = [moment - start for moment in record.token_times]
            line = {"target": run.target, "label": run.label, "repeat": run.repeat, **fields}
            self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
