"""Options are declared as fields of a frozen dataclass: the value, and how it is named, grouped and explained."""

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Required, TypedDict, TypeVar, Unpack

from pagewire.protocol.option_types import Kind

T = TypeVar("T")
D = TypeVar("D")

_METADATA_KEY = "option"


class Details(TypedDict, total=False):
    """What the declaring functions take beside kind and default.

    ``aliases`` are further flags of the same meaning, ``off_aliases`` flags that switch a boolean off; ``positional``
    allows the value without its flag; a ``secret`` is never shown; ``shown_default`` explains a default decided later.
    """

    group: Required[str]
    help: Required[str]
    aliases: tuple[str, ...]
    off_aliases: tuple[str, ...]
    positional: bool
    secret: bool
    shown_default: str


@dataclass(frozen=True, slots=True)
class Option:
    """One declared option; see ``Details`` for the fields that come from there. ``default`` is None if required."""

    name: str
    kind: Kind[Any]
    default: Callable[[], Any] | None
    group: str
    help: str
    aliases: tuple[str, ...] = ()
    off_aliases: tuple[str, ...] = ()
    positional: bool = False
    secret: bool = False
    shown_default: str = ""

    @property
    def key(self) -> str:
        """The name in a config file: ``max-model-len``."""
        return self.name.replace("_", "-")

    @property
    def flag(self) -> str:
        """The name on the command line: ``--max-model-len``."""
        return f"--{self.key}"

    @property
    def variable(self) -> str:
        """The name in the environment: ``PAGEWIRE_MAX_MODEL_LEN``."""
        return f"PAGEWIRE_{self.name.upper()}"

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value."""
        return not self.kind.metavar


def option(kind: Kind[T], default: D, **details: Unpack[Details]) -> T | D:
    """Declare an option with a constant default (None usually means: off, or decided later)."""
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: copy.copy(default), metadata=_metadata(kind, details))
    return dataclasses.field(default=default, metadata=_metadata(kind, details))


def computed_option(kind: Kind[T], default: Callable[[], T], **details: Unpack[Details]) -> T:
    """Declare an option whose default depends on the user or the machine."""
    return dataclasses.field(default_factory=default, metadata=_metadata(kind, details))


def required_option(kind: Kind[T], **details: Unpack[Details]) -> T:
    """Declare an option without a default."""
    field: T = dataclasses.field(metadata=_metadata(kind, details))
    return field


def options_of(config_class: type[Any]) -> tuple[Option, ...]:
    """Return the options that the fields of a config class declare, in their order."""
    declared = []
    for field in dataclasses.fields(config_class):
        kind, details = field.metadata[_METADATA_KEY]
        declared.append(Option(name=field.name, kind=kind, default=_default_of(field), **details))
    return tuple(declared)


def _metadata(kind: Kind[Any], details: Details) -> dict[str, tuple[Kind[Any], Details]]:
    return {_METADATA_KEY: (kind, details)}


def _default_of(field: "dataclasses.Field[Any]") -> Callable[[], Any] | None:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    if field.default is not dataclasses.MISSING:
        value = field.default
        return lambda: value
    return None
