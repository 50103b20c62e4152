"""Measure Pagewire and its peers in turns, workload by workload, and write the table of the results.

The servers of a phase run at the same time, and only one is asked anything at any time; how much the idle ones cost is
measured and written down.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from pagewire.bench.client import RequestFailed, RequestSettings, Target
from pagewire.bench.peers.goals import PHASES
from pagewire.bench.peers.make_models import NAME, make_models
from pagewire.bench.peers.processes import ServerFailed, ServerSpec, Weight, running, weigh
from pagewire.bench.peers.servers import DEFAULT_NAMES, NAMES, model_directory, program_of, server_spec
from pagewire.bench.peers.table import figures_table, goals_table, markdown_table, warnings_list
from pagewire.bench.peers.turns import SETTLE_S, take_turns
from pagewire.bench.progress import choose_progress
from pagewire.bench.report_html import render_report
from pagewire.bench.results import Run, Settings, make_result, save_result
from pagewire.bench.suite import choose_presets, preset_settings

_TOKEN_RANGE = (1000, 30000)
_IDLE_S = 5.0
# More than this of a core, idle, disturbs the others: they can then not run at the same time.
_IDLE_LIMIT = 0.02
_DRY_REQUESTS, _DRY_TOKENS = 2, 8


class PhaseResult(Struct, frozen=True):
    """What one phase measured. ``load`` is the machine's load average just before its servers started."""

    settings: list[Settings]
    specs: list[ServerSpec]
    runs: list[Run]
    weights: dict[str, Weight]
    load: float


def main() -> int:
    """Run the comparison; returns the exit status."""
    args = _parser().parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    wanted = [name for name in args.servers.split(",") if name] or list(DEFAULT_NAMES)
    try:
        presets = [preset.name for preset in choose_presets([name for name in args.only.split(",") if name])]
        servers = [name for name in wanted if _is_installed(name, args.peers)]
        if not model_directory(args.peers).exists():
            make_models(args.peers / "models")
    except ValueError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    results, complete = _run_phases(presets, servers, args)
    if results:
        _write(results, args)
    return 0 if complete else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="directory for result.json, table.md, report.html and the logs")
    parser.add_argument("--peers", type=Path, default=Path("build/peers"), help="where they are; default build/peers")
    parser.add_argument(
        "--servers", default="", metavar="NAME[,NAME...]", help=f"of {', '.join(NAMES)}; default all but the last"
    )
    parser.add_argument("--only", default="", metavar="NAME[,NAME...]", help="some of w1, w2-32, w2-64, w3, w4, w5")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry-run", action="store_true", help="a few short requests: whether it works, not how fast")
    return parser


def _is_installed(name: str, peers: Path) -> bool:
    if name not in NAMES:
        raise ValueError(f"no server {name!r}; there are {', '.join(NAMES)}")
    if program_of(name, peers).exists():
        return True
    print(f"compare: {name} is not installed in {peers}, left out", file=sys.stderr)
    return False


def _run_phases(
    presets: Sequence[str], servers: Sequence[str], args: argparse.Namespace
) -> tuple[list[PhaseResult], bool]:
    """Run what is wanted of every phase; returns what was measured, and whether that is all of it."""
    results: list[PhaseResult] = []
    complete = True
    for phase in PHASES:
        specs = [server_spec(name, args.peers.resolve(), phase.slots) for name in phase.servers if name in servers]
        settings = [_settings(name, args) for name in phase.workloads if name in presets]
        if not specs or not settings:
            continue
        try:
            results.append(_run_phase(specs, settings, args.output))
        except (ServerFailed, RequestFailed) as error:
            print(f"compare: {', '.join(phase.workloads)} not measured: {error}", file=sys.stderr)
            complete = False
            continue
        if any(run.interrupted for run in results[-1].runs):
            return results, False
    return results, complete


def _run_phase(specs: list[ServerSpec], settings: list[Settings], logs: Path) -> PhaseResult:
    load = os.getloadavg()[0]
    print(f"starting {', '.join(spec.name for spec in specs)} (load average {load:.1f})", file=sys.stderr)
    with running(specs, logs) as processes:
        time.sleep(SETTLE_S)
        weights = weigh(processes, _IDLE_S)
        runs = _measure(specs, settings)
    return PhaseResult(settings, specs, runs, weights, load)


def _settings(name: str, args: argparse.Namespace) -> Settings:
    (preset,) = choose_presets([name])
    if args.dry_run:
        preset = msgspec.structs.replace(
            preset,
            requests=_DRY_REQUESTS,
            output_tokens=_DRY_TOKENS,
            level=preset.level if preset.kind == "open" else min(preset.level, _DRY_REQUESTS),
        )
    return preset_settings(preset, RequestSettings(), args.repeats, args.seed, _TOKEN_RANGE)


def _measure(specs: Sequence[ServerSpec], settings: Sequence[Settings]) -> list[Run]:
    progress = choose_progress(quiet=False)
    try:
        return asyncio.run(take_turns(specs, settings, progress))
    finally:
        progress.close()


def _write(results: Sequence[PhaseResult], args: argparse.Namespace) -> None:
    targets = {spec.name: Target(spec.name, spec.url, NAME) for result in results for spec in result.specs}
    settings = [each for result in results for each in result.settings]
    runs = [run for result in results for run in result.runs]
    result = make_result(list(targets.values()), settings, runs, sys.argv)
    save_result(result, str(args.output / "result.json"))
    (args.output / "report.html").write_text(render_report(result), encoding="utf-8")
    (args.output / "phases.json").write_bytes(
        msgspec.json.format(msgspec.json.encode([(each.specs, each.weights, each.load) for each in results]))
    )
    text = _report(results, runs, dry=args.dry_run)
    (args.output / "table.md").write_text(text, encoding="utf-8")
    print(text)


def _report(results: Sequence[PhaseResult], runs: Sequence[Run], *, dry: bool) -> str:
    parts = ["**A dry run: these figures mean nothing.**"] if dry else []
    parts += ["Medians of repeats, with the smallest and the largest:", figures_table(runs)]
    parts += ["Ratios of medians against what was asked:", goals_table(runs)]
    parts += ["Idle, all of a phase at once:", _weights_table(results), "Warnings:", warnings_list(runs)]
    return "\n\n".join(parts) + "\n"


def _weights_table(results: Sequence[PhaseResult]) -> str:
    rows = [
        [
            f"{name} (with {', '.join(each.load.name for each in result.settings)})",
            f"{weight.start_s:.1f}",
            f"{weight.memory_mb:,.0f}",
            f"{weight.idle_cpu:.1%}" + (" (too much)" if weight.idle_cpu > _IDLE_LIMIT else ""),
            f"{result.load:.1f}",
        ]
        for result in results
        for name, weight in result.weights.items()
    ]
    return markdown_table(["server", "start to first token, s", "memory, MB", "of a core", "load before"], rows)


if __name__ == "__main__":
    sys.exit(main())
