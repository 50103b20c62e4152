"""Measure with a client nobody here wrote: vLLM's own, against both servers in turns."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from pagewire.bench.peers.processes import ServerFailed, ServerSpec, running
from pagewire.bench.peers.servers import model_directory, program_of, server_spec
from pagewire.bench.peers.table import markdown_table
from pagewire.bench.report_text import format_number


class Load(Struct, frozen=True):
    """A load as vLLM's client takes it: lengths in tokens, and its flags for how requests arrive."""

    name: str
    input_tokens: int
    output_tokens: int
    requests: int
    arrival: tuple[str, ...]


class Report(Struct, frozen=True):
    """What is read of the client's result; latencies in milliseconds."""

    completed: int
    output_throughput: float
    median_ttft_ms: float
    median_itl_ms: float
    p99_itl_ms: float


LOADS = (
    Load("w1", 128, 128, 6, ("--max-concurrency", "1")),
    Load("w2-32", 256, 128, 64, ("--max-concurrency", "32")),
    Load("w2-64", 256, 128, 64, ("--max-concurrency", "64")),
    Load("w3", 2048, 16, 6, ("--max-concurrency", "1")),
    Load("w5", 256, 64, 60, ("--request-rate", "2")),
)
_SERVERS = "pagewire,pagewire-int8,vllm-all-cores"
_FIELDS = tuple(name for name in Report.__struct_fields__ if name != "completed")


def main() -> int:
    """Run the loads; returns the exit status."""
    args = _parser().parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    peers = args.peers.resolve()
    specs = [server_spec(name, peers) for name in args.servers.split(",")]
    only = args.only.split(",") if args.only else [load.name for load in LOADS]
    loads = [load for load in LOADS if load.name in only]
    try:
        with running(specs, args.output):
            rows = [row for load in loads for row in _measure(load, specs, peers, args)]
    except (ServerFailed, subprocess.CalledProcessError) as error:
        print(f"confirm: {error}", file=sys.stderr)
        return 1
    first, *others = args.servers.split(",")
    table = markdown_table(["workload", first, *others, *(f"{first} / {name}" for name in others)], rows)
    (args.output / "confirm.md").write_text(table + "\n", encoding="utf-8")
    print(table)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="directory for the client's results, confirm.md and the logs")
    parser.add_argument("--peers", type=Path, default=Path("build/peers"), help="where they are; default build/peers")
    parser.add_argument("--servers", default=_SERVERS, metavar="NAME,NAME...", help=f"default {_SERVERS}")
    parser.add_argument("--only", default="", metavar="NAME[,NAME...]", help="some of w1, w2-32, w2-64, w3, w5")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument("--requests", type=int, metavar="N", help="instead of what the workload has, to try it")
    return parser


def _measure(load: Load, specs: Sequence[ServerSpec], peers: Path, args: argparse.Namespace) -> list[list[str]]:
    """Run one load on every server in turns; returns a row of medians and ratios for each figure."""
    reports: dict[str, list[Report]] = {spec.name: [] for spec in specs}
    for repeat in range(args.repeats):
        for spec in specs:
            command = _command(load, spec, repeat, peers, args)
            log = args.output / f"client-{load.name}-{spec.name}-{repeat}.log"
            with log.open("wb") as output:
                subprocess.run(command, env=_environ(), stdout=output, stderr=subprocess.STDOUT, check=True)
            reports[spec.name].append(_read(args.output / _result_name(load, spec, repeat)))
    return [_row(load, field, list(reports.values())) for field in _FIELDS]


def _row(load: Load, field: str, reports: Sequence[Sequence[Report]]) -> list[str]:
    medians = [median(getattr(report, field) for report in each) for each in reports]
    ratios = [f"{medians[0] / other:.2f}" if other else "" for other in medians[1:]]
    return [f"{load.name.upper()} {field}", *map(format_number, medians), *ratios]


def _command(load: Load, spec: ServerSpec, repeat: int, peers: Path, args: argparse.Namespace) -> list[str]:
    requests = args.requests or load.requests
    options = {
        "--backend": "openai",
        "--base-url": spec.url,
        "--endpoint": "/v1/completions",
        "--tokenizer": str(model_directory(peers)),
        "--dataset-name": "random",
        "--random-input-len": str(load.input_tokens),
        "--random-output-len": str(load.output_tokens),
        "--num-prompts": str(requests),
        "--num-warmups": "1",
        # The same prompts for all servers; others for each load and repeat, or a prefix cache would have them.
        "--seed": str(repeat * len(LOADS) + LOADS.index(load)),
        "--temperature": "0",
        "--percentile-metrics": "ttft,itl",
        "--metric-percentiles": "99",
        "--result-dir": str(args.output),
        "--result-filename": _result_name(load, spec, repeat),
    }
    flags = ["--ignore-eos", "--save-result", "--disable-tqdm", *load.arrival]
    return [
        str(program_of("vllm", peers)),
        "bench",
        "serve",
        *flags,
        *(part for pair in options.items() for part in pair),
    ]


def _result_name(load: Load, spec: ServerSpec, repeat: int) -> str:
    return f"client-{load.name}-{spec.name}-{repeat}.json"


def _environ() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1"}


def _read(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


if __name__ == "__main__":
    sys.exit(main())
