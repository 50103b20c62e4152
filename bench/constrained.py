"""What it costs a server that answers must follow a grammar: none of the requests at once, half of them, all of them.

The three ways take turns on one server, in an order that rotates, each time with prompts of its own. Lengths are fixed
and the same in all: the schema is one that no answer can complete before.
"""

import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from pagewire.bench.client import Client, RequestSettings, Target
from pagewire.bench.experiment import run_once, warm_up
from pagewire.bench.figures import compare_figure, figure_named, values_of
from pagewire.bench.lengths import Lengths
from pagewire.bench.progress import Progress
from pagewire.bench.report_text import format_table, median_and_range, run_line, warnings_of
from pagewire.bench.results import LoadSettings, RecordWriter, Run, Settings
from pagewire.bench.workloads import WorkloadSettings

_FIGURES = ("ITL p50", "ITL p99", "TPOT p50", "TTFT p50", "output tokens/s")

# Objects of free texts, numbers and choices, as answers of programs have them.
SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 1000,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 8, "maxLength": 40},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 3},
            "score": {"type": "number"},
        },
        "required": ["name", "age", "tags", "score"],
        "additionalProperties": False,
    },
}
RESPONSE_FORMAT: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "long", "schema": SCHEMA}}


class ConstrainedSettings(Struct, frozen=True):
    """How much of it: lengths in tokens, and requests per way and round."""

    input_tokens: int = 128
    output_tokens: int = 128
    rounds: int = 5
    requests: int = 64
    concurrency: int = 32
    seed: int = 0


class Way(Struct, frozen=True):
    """One share of constrained requests; ``every`` 2 is each second one, None none of them."""

    name: str
    every: int | None


WAYS = (Way("plain", None), Way("half", 2), Way("constrained", 1))


def read_response_format(path: str) -> dict[str, Any]:
    """Read a ``response_format`` from a file; raises ``ValueError`` if there is none in it."""
    try:
        found = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a response_format in JSON: {error}") from None
    if not isinstance(found, dict) or "type" not in found:
        raise ValueError(f"{path} is not a response_format: expected an object with a type")
    return found


def way_settings(sizes: ConstrainedSettings, base: RequestSettings, response_format: dict[str, Any]) -> list[Settings]:
    """Return the settings of each of ``WAYS``. Their seeds differ: none finds another one's prompts in a cache."""
    workload = WorkloadSettings(Lengths("fixed", sizes.input_tokens), Lengths("fixed", sizes.output_tokens))
    return [
        Settings(
            LoadSettings(
                kind="closed",
                levels=[float(sizes.concurrency)],
                requests=sizes.requests,
                repeats=sizes.rounds,
                seed=sizes.seed * len(WAYS) + number,
                warmup=min(4, sizes.requests),
            ),
            workload,
            _request(base, way, response_format),
        )
        for number, way in enumerate(WAYS)
    ]


def _request(base: RequestSettings, way: Way, response_format: dict[str, Any]) -> RequestSettings:
    if way.every is None:
        return base
    return msgspec.structs.replace(base, extra_body={"response_format": response_format}, extra_body_every=way.every)


async def run_constrained(
    target: Target, settings: Sequence[Settings], progress: Progress, writer: RecordWriter | None = None
) -> list[Run]:
    """Measure all ways round by round; ``settings`` are those of ``WAYS``. An interrupt ends it early."""
    runs: list[Run] = []
    async with AsyncExitStack() as stack:
        turns = []
        for way, each in zip(WAYS, settings, strict=True):
            named = msgspec.structs.replace(target, name=way.name)
            turns.append((await stack.enter_async_context(Client(named, each.request)), each))
        for client, each in turns:
            await warm_up(client, each, progress)
        for number in range(settings[0].load.repeats):
            first = number % len(turns)
            for client, each in turns[first:] + turns[:first]:
                run, records = await run_once(client, each, each.load.levels[0], number, progress)
                runs.append(run)
                progress.say(run_line(run))
                if writer is not None:
                    writer.write(run, records)
                if run.interrupted:
                    return runs
    return runs


def report_constrained(runs: Sequence[Run]) -> str:
    """Write medians over rounds, and how the shares of constrained requests compare with none."""
    by_way = {way.name: [run for run in runs if run.target == way.name] for way in WAYS}
    plain, *others = by_way
    header = ["figure", "unit", *by_way, *(f"{name}/{plain}" for name in others)]
    rows = []
    for figure in map(figure_named, _FIGURES):
        row = [figure.name, figure.unit]
        row += [median_and_range(values_of(figure, found)) for found in by_way.values()]
        ratios = [compare_figure(figure, by_way[plain], by_way[name]) for name in others]
        row += [f"{each.ratio:.3f} ({each.low:.3f}-{each.high:.3f})" if each else "-" for each in ratios]
        rows.append(row)
    warnings = dict.fromkeys(f"! {run.target} {run.label}: {text}" for run in runs for text in warnings_of(run))
    return "\n".join([format_table(header, rows), *warnings])
