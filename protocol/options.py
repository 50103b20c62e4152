"""Builds a program's configuration: flags over environment over config file over defaults, into a frozen dataclass.

A config class declares its options with ``protocol/option_fields.py``. ``read_options`` is all that a ``main`` calls;
a ``ValueError`` from the class's own ``__post_init__`` (what several values must fulfil together) is reported the same
way as a single wrong value: one line, exit status 2.
"""

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pagewire.protocol.option_fields import Option, options_of
from pagewire.protocol.option_sources import (
    CommandLine,
    OptionError,
    Raw,
    from_environment,
    from_file,
    parse_command_line,
    shown,
)

C = TypeVar("C")

USAGE_ERROR = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """One option's effective value and where it came from."""

    option: Option
    value: Any
    source: str


def read_options(
    config_class: type[C],
    argv: Sequence[str] | None,
    *,
    prog: str,
    description: str,
    other_names: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
) -> C:
    """Return the configuration of a program; ``other_names`` are the option names of its counterpart.

    Exits as ``usage_errors`` and ``read_settings`` say.
    """
    with usage_errors(prog):
        settings = read_settings(
            options_of(config_class),
            argv,
            prog=prog,
            description=description,
            other_names=other_names,
            environ=environ,
        )
        return build(config_class, settings)


@contextmanager
def usage_errors(prog: str) -> Iterator[None]:
    """Turn an ``OptionError`` into one line on standard error and exit status 2."""
    try:
        yield
    except OptionError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        raise SystemExit(USAGE_ERROR) from None


def read_settings(
    options: Sequence[Option],
    argv: Sequence[str] | None,
    *,
    prog: str,
    description: str,
    other_names: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[Setting, ...]:
    """Return the effective settings and print warnings; raises ``OptionError``.

    ``--help``, ``--version`` and ``--print-config`` print and exit with status 0.
    """
    command_line = parse_command_line(options, sys.argv[1:] if argv is None else argv, prog, description)
    settings, warnings = resolve(options, command_line, os.environ if environ is None else environ, other_names)
    for warning in warnings:
        print(f"{prog}: warning: {warning}", file=sys.stderr)
    if command_line.print_config:
        print(config_listing(settings))
        raise SystemExit(0)
    return settings


def resolve(
    options: Sequence[Option], command_line: CommandLine, environ: Mapping[str, str], other_names: Collection[str] = ()
) -> tuple[tuple[Setting, ...], list[str]]:
    """Decide each option's value, and collect warnings for the user; raises ``OptionError``.

    A required option that nobody set is left out.
    """
    from_variables, config_variable, warnings = from_environment(options, environ, other_names)
    path = command_line.config or config_variable
    from_config = from_file(options, path, other_names) if path else {}
    found = {**from_config, **from_variables, **command_line.values}
    settings = []
    for option in options:
        raw = found.get(option.name)
        if raw is not None:
            settings.append(Setting(option, convert(option, raw), raw.source))
        elif option.default is not None:
            settings.append(Setting(option, option.default(), "default"))
    return tuple(settings), warnings


def convert(option: Option, raw: Raw) -> Any:
    """Turn a raw value into the option's; raises ``OptionError`` naming the place, what was expected and what came."""
    try:
        return option.kind.read(raw.value)
    except (ValueError, TypeError, OverflowError):
        got = "something else" if option.secret else repr(raw.value)
        raise OptionError(f"{raw.place}: expected {option.kind.expected}, got {got}") from None


def build(config_class: type[C], settings: Sequence[Setting]) -> C:
    """Make the frozen configuration; raises ``OptionError`` for a missing required option or values at odds."""
    values = {setting.option.name: setting.value for setting in settings}
    for option in options_of(config_class):
        if option.name not in values:
            raise OptionError(f"{option.flag}: required ({option.help})")
    try:
        return config_class(**values)
    except ValueError as error:
        raise OptionError(str(error)) from error


def config_listing(settings: Sequence[Setting]) -> str:
    """List every effective value with its source, one a line, secrets masked."""
    rows = [(f"{setting.option.key}: {_shown(setting)}", setting.source) for setting in settings]
    width = min(60, max(len(row[0]) for row in rows))
    return "\n".join(f"{value:<{width}}  # {source}" for value, source in rows)


def _shown(setting: Setting) -> str:
    """Say what an absent value stands for, where the option's declaration does."""
    decided_later = setting.value in (None, ()) and setting.option.shown_default
    return setting.option.shown_default if decided_later else shown(setting.option, setting.value)
