"""Where option values come from: the command line, the environment, a config file. Values stay raw here.

A program also knows the option names of its counterpart (``other_names``), because one environment and one config file
may serve both; only names that belong to neither are reported.
"""

import argparse
import difflib
import textwrap
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import yaml

from pagewire.protocol.option_fields import Option

_CONFIG_VARIABLE = "PAGEWIRE_CONFIG"
_POSITIONAL_SUFFIX = "_positional"


class OptionError(Exception):
    """What is wrong with the options, in one line for the user."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A value as found, and where: ``place`` names it for error messages, ``source`` for ``--print-config``."""

    value: object
    place: str
    source: str


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What the command line says: values by option name, and the standard flags."""

    values: dict[str, Raw]
    config: str | None
    print_config: bool


class OneLineParser(argparse.ArgumentParser):
    """Reports an error as ``OptionError`` instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        """Raise the message, which argparse begins with the word argument where it concerns one."""
        raise OptionError(message.removeprefix("argument "))


class _Formatter(argparse.HelpFormatter):
    """Wraps help texts between words only, so that flag names in them stay whole."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=110)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


def parse_command_line(options: Sequence[Option], argv: Sequence[str], prog: str, description: str) -> CommandLine:
    """Split the command line into raw values; ``--help`` and ``--version`` print and exit.

    Raises ``OptionError`` for unknown flags, missing values and a positional value given twice.
    """
    parser = build_parser(options, prog, description)
    parsed, unknown = parser.parse_known_args(argv)
    if unknown:
        raise OptionError(_unknown_argument(unknown, parser))
    found = vars(parsed)
    values = {}
    for option in options:
        positional = found.get(option.name + _POSITIONAL_SUFFIX)
        if positional is not None and option.name in found:
            raise OptionError(f"{option.flag}: given twice, as {positional!r} and {found[option.name]!r}")
        raw = found.get(option.name, positional)
        if raw is not None:
            values[option.name] = Raw(raw, option.flag, "command line")
    return CommandLine(values, found.get("config"), found.get("print_config", False))


def build_parser(options: Sequence[Option], prog: str, description: str) -> argparse.ArgumentParser:
    """Build the argument parser: grouped help, every value kept as text, absent flags absent from the result."""
    parser = OneLineParser(
        prog=prog,
        description=description,
        usage="%(prog)s [MODEL] [options]" if any(option.positional for option in options) else "%(prog)s [options]",
        epilog="Every option can also be set by environment (--max-inflight is PAGEWIRE_MAX_INFLIGHT) or in the config"
        " file; the command line wins over the environment, and the environment over the file.",
        formatter_class=_Formatter,
        allow_abbrev=False,
        add_help=False,
        argument_default=argparse.SUPPRESS,
    )
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in options:
        group = groups.get(option.group) or groups.setdefault(option.group, parser.add_argument_group(option.group))
        _add_option(group, option)
    general = parser.add_argument_group("General")
    general.add_argument("--config", metavar="FILE", help="YAML or TOML file; its keys are the flags without dashes")
    general.add_argument(
        "--print-config", action="store_true", help="print each effective value and where it comes from, then exit"
    )
    general.add_argument("--version", action="version", version=version("pagewire"), help="print the version and exit")
    general.add_argument("-h", "--help", action="help", help="print this help and exit")
    return parser


def from_environment(
    options: Sequence[Option], environ: Mapping[str, str], other_names: Collection[str]
) -> tuple[dict[str, Raw], str | None, list[str]]:
    """Return values by option name, the config file named by the environment, and warnings about unknown variables.

    An empty variable counts as unset, as is usual for variables that a service manager passes through.
    """
    values = {
        option.name: Raw(environ[option.variable], option.variable, option.variable)
        for option in options
        if environ.get(option.variable)
    }
    own = {option.variable for option in options} | {_CONFIG_VARIABLE}
    known = own | {f"PAGEWIRE_{name.upper()}" for name in other_names}
    warnings = [
        f"environment variable {variable} is not an option{nearest(variable, known)}"
        for variable in sorted(environ)
        if variable.startswith("PAGEWIRE_") and variable not in known
    ]
    return values, environ.get(_CONFIG_VARIABLE) or None, warnings


def from_file(options: Sequence[Option], path: str, other_names: Collection[str]) -> dict[str, Raw]:
    """Return values by option name from a YAML or TOML file; keys of the other program are skipped, null is unset.

    Raises ``OptionError`` if the file cannot be read or has a key that no option has.
    """
    names = {option.key: option.name for option in options}
    foreign = {name.replace("_", "-") for name in other_names}
    values = {}
    for written, value in _load_file(path).items():
        key = str(written).replace("_", "-")
        if key in names and value is not None:
            values[names[key]] = Raw(value, f"{path}: {key}", path)
        elif key not in names and key not in foreign:
            raise OptionError(f"{path}: unknown key {written!r}{nearest(key, {*names, *foreign})}")
    return values


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return a hint that names the most similar candidate, or nothing."""
    close = difflib.get_close_matches(name, sorted(candidates), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _add_option(group: "argparse._ArgumentGroup", option: Option) -> None:
    help_text = _help_of(option).replace("%", "%%")
    if option.positional:
        group.add_argument(option.name + _POSITIONAL_SUFFIX, metavar=option.name.upper(), nargs="?", help=help_text)
        help_text = f"the same {option.name}, by flag"
    settings: dict[str, Any] = {"dest": option.name}
    if option.is_switch:
        settings["action"] = argparse.BooleanOptionalAction
    else:
        settings["metavar"] = option.kind.metavar
        settings["action"] = "append" if option.kind.many else "store"
    group.add_argument(option.flag, help=help_text, **settings)
    # Aliases work but only the help of the main flag names them, which keeps it one line a flag.
    if option.aliases:
        group.add_argument(*option.aliases, help=argparse.SUPPRESS, **settings)
    if option.off_aliases:
        group.add_argument(*option.off_aliases, dest=option.name, action="store_false", help=argparse.SUPPRESS)


def _help_of(option: Option) -> str:
    parts = [option.help]
    default = option.shown_default
    if not default and option.default is not None:
        value = option.default()
        default = "" if value in (None, "", (), {}) else shown(option, value)
    if default:
        parts.append(f"[{default}]")
    if option.aliases or option.off_aliases:
        parts.append(f"(also {', '.join(option.aliases + option.off_aliases)})")
    return " ".join(parts)


def shown(option: Option, value: object) -> str:
    """Write a value as a person would in the help or in ``--print-config``; secrets are masked."""
    if value in (None, (), ""):
        return "none"
    if option.secret:
        return "***"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _unknown_argument(unknown: Sequence[str], parser: argparse.ArgumentParser) -> str:
    flags = [argument for argument in unknown if argument.startswith("-")]
    if not flags:
        return f"unexpected argument {unknown[0]!r}"
    flag = flags[0].partition("=")[0]
    known = [name for action in parser._actions for name in action.option_strings]
    return f"unknown option {flag}{nearest(flag, known)}"


def _load_file(path: str) -> dict[Any, Any]:
    try:
        content = Path(path).read_text(encoding="utf-8")
        loaded = tomllib.loads(content) if path.endswith(".toml") else yaml.safe_load(content)
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"--config: cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise OptionError(f"--config: {path} is not valid: {' '.join(str(error).split())}") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise OptionError(f"--config: {path}: expected a mapping of option names to values")
    return loaded
