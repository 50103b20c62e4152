"""``pagewire bench``: the load harness's command line."""

import argparse
import asyncio
import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pagewire.bench import options
from pagewire.bench.client import Client, RequestFailed, Target
from pagewire.bench.compare import compare_results
from pagewire.bench.constrained import (
    RESPONSE_FORMAT,
    ConstrainedSettings,
    read_response_format,
    report_constrained,
    run_constrained,
    way_settings,
)
from pagewire.bench.experiment import run_experiment, warm_up
from pagewire.bench.micro.frontend import free_port
from pagewire.bench.micro.run import NAMES, PARTS, report_frontend, report_parts
from pagewire.bench.parity import ParityRow, ParitySettings, report_parity, run_parity
from pagewire.bench.progress import Progress, choose_progress
from pagewire.bench.report_html import render_report
from pagewire.bench.report_text import report_result, warnings_of
from pagewire.bench.results import (
    LoadSettings,
    RecordWriter,
    Result,
    Run,
    Settings,
    load_result,
    make_result,
    save_result,
)
from pagewire.bench.stub import StubSettings, serve_stub
from pagewire.bench.suite import choose_presets, preset_settings, report_suite, run_suite
from pagewire.bench.sweep import SweepSettings, run_sweep

_T = TypeVar("_T")


def main(argv: Sequence[str]) -> int:
    """Run one command; returns the exit status: 0 well, 1 nothing was measured, 2 wrong usage, 130 interrupted."""
    parser = _make_parser()
    args = parser.parse_args(argv)
    args.argv = ["bench", *argv]
    try:
        status: int = args.command(args)
    except (ValueError, RequestFailed) as error:
        print(f"pagewire bench: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    return status


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pagewire bench", description="Measure an OpenAI-compatible server, or the parts of this one."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for add in (
        *(_add_run, _add_sweep, _add_suite, _add_parity, _add_constrained),
        *(_add_compare, _add_report, _add_stub, _add_micro),
    ):
        add(commands)
    return parser


def _command(commands: Any, name: str, run: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, description=about)
    parser.set_defaults(command=run)
    return parser


def _run_async(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run on uvloop where it is installed: the cheaper the client, the truer the figures."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(coroutine)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(coroutine)


@contextlib.contextmanager
def _outputs(args: argparse.Namespace) -> Iterator[tuple[Progress, RecordWriter | None]]:
    progress = choose_progress(quiet=args.quiet)
    writer = RecordWriter(args.records) if args.records else None
    try:
        yield progress, writer
    finally:
        progress.close()
        if writer is not None:
            writer.close()


def _finish(args: argparse.Namespace, result: Result, text: str) -> int:
    """Print and write what was measured."""
    print(text)
    if args.output:
        save_result(result, args.output)
    if args.html:
        Path(args.html).write_text(render_report(result), encoding="utf-8")
    return 0 if any(run.summary.completed for run in result.runs) else 1


def _add_run(commands: Any) -> None:
    parser = _command(commands, "run", _run, "Measure a server at given levels of load, alone or in turns with others.")
    options.add_server_options(parser)
    options.add_load_options(parser)
    options.add_workload_options(parser)
    options.add_request_options(parser)
    options.add_output_options(parser)


def _run(args: argparse.Namespace) -> int:
    settings = options.run_settings(args)

    async def measure(progress: Progress, writer: RecordWriter | None) -> tuple[list[Target], list[Run]]:
        targets = await options.find_targets([args.url, *args.against], args.model, settings.request)
        return targets, await run_experiment(targets, settings, progress, writer)

    with _outputs(args) as (progress, writer):
        targets, runs = _run_async(measure(progress, writer))
    result = make_result(targets, [settings], runs, args.argv)
    return _finish(args, result, report_result(result))


def _add_sweep(commands: Any) -> None:
    parser = _command(commands, "sweep", _sweep, "Find the highest load that holds a service level (--slo).")
    options.add_server_options(parser, several=False)
    group = parser.add_argument_group("search")
    group.add_argument("--over", choices=["rate", "concurrency"], default="rate", help="what to raise; default rate")
    group.add_argument("--start", type=float, default=1.0, metavar="X", help="where to begin; default 1")
    group.add_argument("--limit", type=float, default=1024.0, metavar="X", help="not to go beyond; default 1024")
    group.add_argument("--precision", type=float, default=0.1, metavar="X", help="relative; default 0.1")
    group.add_argument(
        "--attainment", type=float, default=0.95, metavar="X", help="share of good requests; default 0.95"
    )
    group.add_argument("--requests", type=int, metavar="N", help="per level")
    group.add_argument("--duration", type=options.seconds, metavar="TIME", help="per level")
    options.add_arrival_options(group)
    options.add_workload_options(parser)
    options.add_request_options(parser)
    options.add_output_options(parser)


def _sweep(args: argparse.Namespace) -> int:
    if args.slo is None:
        raise ValueError("a sweep needs a service level: --slo ttft=500ms,itl=50ms")
    load = LoadSettings(
        kind="open" if args.over == "rate" else "closed",
        levels=[args.start],
        arrivals=args.arrivals,
        burstiness=args.burstiness,
        requests=args.requests,
        duration_s=args.duration,
        warmup=args.warmup,
        seed=args.seed,
        think_time_s=args.think_time,
    )
    settings = Settings(load, options.workload_settings(args), options.request_settings(args), args.slo)
    sweep = SweepSettings(args.start, args.limit, args.precision, args.attainment, whole=args.over == "concurrency")

    async def measure(progress: Progress, writer: RecordWriter | None) -> tuple[Target, float | None, list[Run]]:
        (target,) = await options.find_targets([args.url], args.model, settings.request)
        async with Client(target, settings.request) as client:
            await warm_up(client, settings, progress)
            return target, *await run_sweep(client, settings, sweep, progress, writer)

    with _outputs(args) as (progress, writer):
        target, best, runs = _run_async(measure(progress, writer))
    unit = "requests/s" if args.over == "rate" else "at once"
    said = [f"highest load that holds it: {best:g} {unit}" if best else "no load holds it"]
    said += [f"! {run.label}: {warning}" for run in runs for warning in warnings_of(run)]
    return _finish(args, make_result([target], [settings], runs, args.argv), "\n".join(said))


def _add_suite(commands: Any) -> None:
    parser = _command(commands, "suite", _suite, "Run the named workloads w1 to w5 and print their table.")
    options.add_server_options(parser)
    group = parser.add_argument_group("suite")
    group.add_argument("--only", default="", metavar="NAME[,NAME...]", help="some of w1, w2-32, w2-64, w3, w4, w5")
    group.add_argument("--repeats", type=int, default=3, metavar="N", help="default 3")
    group.add_argument("--seed", type=int, default=0)
    group.add_argument("--token-range", type=options.token_range, default=(1000, 30000), metavar="LOW:HIGH")
    options.add_output_options(parser)


def _suite(args: argparse.Namespace) -> int:
    presets = choose_presets([name for name in args.only.split(",") if name])
    request = options.request_settings(args)
    settings = [preset_settings(each, request, args.repeats, args.seed, args.token_range) for each in presets]

    async def measure(progress: Progress, writer: RecordWriter | None) -> tuple[list[Target], list[Run]]:
        targets = await options.find_targets([args.url, *args.against], args.model, request)
        return targets, await run_suite(targets, settings, progress, writer)

    with _outputs(args) as (progress, writer):
        targets, runs = _run_async(measure(progress, writer))
    return _finish(args, make_result(targets, settings, runs, args.argv), report_suite(presets, targets, runs))


def _add_parity(commands: Any) -> None:
    parser = _command(
        commands, "parity", _parity, "Compare chat with completions of the same token ids, streamed and plain."
    )
    options.add_server_options(parser, several=False)
    defaults = ParitySettings()
    _add_sizes(parser, defaults)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def _parity(args: argparse.Namespace) -> int:
    request = options.request_settings(args)
    parity = ParitySettings(**{name: getattr(args, name) for name in ParitySettings.__struct_fields__})

    async def measure(progress: Progress) -> list[ParityRow]:
        (target,) = await options.find_targets([args.url], args.model, request)
        return await run_parity(target, request, parity, progress)

    with contextlib.closing(choose_progress(quiet=args.quiet)) as progress:
        rows = _run_async(measure(progress))
    print(report_parity(rows))
    return 0


def _add_sizes(parser: argparse.ArgumentParser, defaults: ParitySettings | ConstrainedSettings) -> None:
    group = parser.add_argument_group("size")
    for name in defaults.__struct_fields__:
        default = getattr(defaults, name)
        group.add_argument(
            f"--{name.replace('_', '-')}", type=int, default=default, metavar="N", help=f"default {default}"
        )


def _add_constrained(commands: Any) -> None:
    parser = _command(
        commands,
        "constrained",
        _constrained,
        "Compare streams that must follow a JSON schema with free ones, in turns: none, half, and all of them at once.",
    )
    options.add_server_options(parser, several=False)
    _add_sizes(parser, ConstrainedSettings())
    parser.add_argument(
        "--response-format", metavar="FILE", help="JSON of a format that no answer completes; default: a long array"
    )
    parser.add_argument("--temperature", type=float, default=1.0, help="default 1")
    parser.add_argument(
        "--serve", metavar="MODEL", help="start Pagewire with this model, and further options in the same text, first"
    )
    options.add_output_options(parser)


def _constrained(args: argparse.Namespace) -> int:
    request = msgspec.structs.replace(options.request_settings(args), temperature=args.temperature)
    sizes = ConstrainedSettings(**{name: getattr(args, name) for name in ConstrainedSettings.__struct_fields__})
    wanted = read_response_format(args.response_format) if args.response_format else RESPONSE_FORMAT
    settings = way_settings(sizes, request, wanted)

    async def measure(url: str, progress: Progress, writer: RecordWriter | None) -> tuple[Target, list[Run]]:
        (target,) = await options.find_targets([url], args.model, request)
        return target, await run_constrained(target, settings, progress, writer)

    with _serving(args.serve) as url, _outputs(args) as (progress, writer):
        target, runs = _run_async(measure(url or args.url, progress, writer))
    return _finish(args, make_result([target], settings, runs, args.argv), report_constrained(runs))


@contextlib.contextmanager
def _serving(model_and_options: str | None) -> Iterator[str | None]:
    """Run Pagewire, and give its URL; nothing without a model."""
    if model_and_options is None:
        yield None
        return
    from pagewire.bench.peers.processes import ServerFailed, ServerSpec, running

    port = free_port()
    command = (sys.executable, "-m", "pagewire.cli", "serve", *shlex.split(model_and_options), "--port", str(port))
    with tempfile.TemporaryDirectory() as logs:
        try:
            with running([ServerSpec("pagewire", command, port)], Path(logs)) as (server,):
                yield server.spec.url
        except ServerFailed as error:
            raise ValueError(str(error)) from None


def _add_compare(commands: Any) -> None:
    parser = _command(commands, "compare", _compare, "Show two results side by side, with ratios.")
    parser.add_argument("before", metavar="A.json")
    parser.add_argument("after", metavar="B.json")


def _compare(args: argparse.Namespace) -> int:
    names = (Path(args.before).stem, Path(args.after).stem)
    names = ("A", "B") if names[0] == names[1] else names
    print(compare_results(load_result(args.before), load_result(args.after), names))
    return 0


def _add_report(commands: Any) -> None:
    parser = _command(commands, "report", _report, "Turn a result into one HTML file with plots, or print it again.")
    parser.add_argument("result", metavar="RESULT.json")
    parser.add_argument("-o", "--output", metavar="FILE.html", help="default: print as text")


def _report(args: argparse.Namespace) -> int:
    result = load_result(args.result)
    if args.output:
        Path(args.output).write_text(render_report(result), encoding="utf-8")
    else:
        print(report_result(result))
    return 0


def _add_stub(commands: Any) -> None:
    parser = _command(
        commands, "stub", _stub, "Serve a stand-in with known timings: to try the harness, or find its ceiling."
    )
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--ttft", type=options.seconds, default=0.0, metavar="TIME")
    parser.add_argument("--itl", type=options.seconds, default=0.0, metavar="TIME")
    parser.add_argument("--tokens-per-event", type=int, default=1, metavar="N")


def _stub(args: argparse.Namespace) -> int:
    settings = StubSettings(ttft_s=args.ttft, itl_s=args.itl, tokens_per_event=args.tokens_per_event)

    async def serve() -> None:
        async with serve_stub(settings, port=args.port) as (_, url):
            print(f"stub at {url}", flush=True)
            await asyncio.Event().wait()

    _run_async(serve())
    return 0


def _add_micro(commands: Any) -> None:
    parser = _command(
        commands, "micro", _micro, "Measure parts of this server, one at a time; all of them without names."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(NAMES)}")


def _micro(args: argparse.Namespace) -> int:
    names = args.parts or NAMES
    for name in names:
        if name not in NAMES:
            raise ValueError(f"no part {name!r}; there are {', '.join(NAMES)}")
    parts = [name for name in names if name in PARTS]
    if parts:
        print(report_parts(parts), flush=True)
    if "frontend" in names:
        print(_run_async(report_frontend()))
    return 0
