"""The options of ``pagewire serve``: those of both programs, sorted out to the one that each belongs to."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pagewire.engine.config import EngineConfig
from pagewire.frontend.config import FrontendConfig
from pagewire.protocol.option_fields import Option, options_of
from pagewire.protocol.options import Setting, build, read_settings, usage_errors

PROG = "pagewire serve"

# The two programs meet at an address of their own, made for this run.
_PRIVATE = frozenset({"endpoint", "engine", "insecure_tcp"})


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Both configurations, and for each program the environment that says the same."""

    engine: EngineConfig
    frontend: FrontendConfig
    engine_environ: dict[str, str]
    frontend_environ: dict[str, str]


def read_serve_options(argv: Sequence[str], address: str, environ: Mapping[str, str] | None = None) -> ServeOptions:
    """Read the options of both programs, which meet at ``address``; exits like ``read_options`` if one is wrong."""
    environ = os.environ if environ is None else environ
    with usage_errors(PROG):
        settings = read_settings(
            serve_options(),
            argv,
            prog=PROG,
            description="Start an engine and a frontend, keep both running, and stop both on Ctrl-C.",
            other_names=_PRIVATE,
            environ=environ,
        )
        engine = _belonging_to(EngineConfig, settings, endpoint=address)
        frontend = _belonging_to(FrontendConfig, settings, engine=(address,))
        return ServeOptions(
            build(EngineConfig, engine),
            build(FrontendConfig, frontend),
            environment_of(engine, environ),
            environment_of(frontend, environ),
        )


def serve_options() -> tuple[Option, ...]:
    """Return every option of both programs once, without those that name the address between them."""
    options = {option.name: option for option in (*options_of(FrontendConfig), *options_of(EngineConfig))}
    return tuple(option for name, option in options.items() if name not in _PRIVATE)


def environment_of(settings: Sequence[Setting], environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` with the settings that are not defaults, and no other PAGEWIRE_ variable.

    The environment carries them, not the command line, because other users can read a command line.
    """
    inherited = {name: value for name, value in environ.items() if not name.startswith("PAGEWIRE_")}
    own = {setting.option.variable: _written(setting.value) for setting in settings if setting.source != "default"}
    return {**inherited, **own}


def _belonging_to(config_class: type[Any], settings: Sequence[Setting], **fixed: Any) -> list[Setting]:
    found = {setting.option.name: setting for setting in settings if setting.source != "default"}
    belonging = []
    for option in options_of(config_class):
        if option.name in fixed:
            belonging.append(Setting(option, fixed[option.name], PROG))
        elif option.name in found:
            belonging.append(replace(found[option.name], option=option))
        elif option.default is not None:
            belonging.append(Setting(option, option.default(), "default"))
    return belonging


def _written(value: Any) -> str:
    """Write a value so that its own kind reads it back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, tuple | dict) else str(value)
