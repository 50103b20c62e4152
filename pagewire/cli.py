"""The ``pagewire`` command. Subcommands are imported when called, so that help and version are instant."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagewire import __version__

Run = Callable[[Sequence[str]], int]


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: one line of help, and what runs it with the arguments after its name."""

    help: str
    run: Run


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if arguments else 2
    name = "version" if arguments[0] == "--version" else arguments[0]
    command = COMMANDS.get(name)
    if command is None:
        print(_unknown(name), file=sys.stderr)
        return 2
    return command.run(arguments[1:])


def _help() -> str:
    rows = "\n".join(f"  {name:<10} {command.help}" for name, command in COMMANDS.items())
    return (
        f"usage: pagewire COMMAND [options]\n\n{rows}\n\n"
        "pagewire COMMAND --help explains a command. The two programs can also be run by themselves, as\n"
        "pagewire-engine and pagewire-frontend."
    )


def _unknown(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(COMMANDS)}"
    return f"pagewire: unknown command {name!r} ({hint})"


def _serve(arguments: Sequence[str]) -> int:
    from pagewire.serve import main as serve

    return serve(arguments)


def _template(arguments: Sequence[str]) -> int:
    from pagewire import template_tool
    from pagewire.protocol.option_sources import OneLineParser
    from pagewire.protocol.options import usage_errors

    parser = OneLineParser(prog="pagewire template", description="Look at chat templates, without a server.")
    template_tool.add_arguments(parser)
    with usage_errors(parser.prog):
        return template_tool.run(parser.parse_args(arguments))


def _bench(arguments: Sequence[str]) -> int:
    from pagewire.bench.cli import main as bench

    return bench(list(arguments))


def _version(_arguments: Sequence[str]) -> int:
    print(__version__)
    return 0


COMMANDS = {
    "serve": Command("start an engine and a frontend, and keep both running", _serve),
    "template": Command("show, render or check a chat template", _template),
    "bench": Command("put load on a server and measure it", _bench),
    "version": Command("print the version", _version),
}


if __name__ == "__main__":
    raise SystemExit(main())
