"""How option values are written: one ``Kind`` for each sort of value, from text or from a config file to Python."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

T = TypeVar("T")
N = TypeVar("N", int, float)

_TRUE = frozenset({"true", "1", "on", "yes"})
_FALSE = frozenset({"false", "0", "off", "no"})
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?)?", re.IGNORECASE)
_SIZE_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One sort of value: ``read`` turns text (flag, environment) or a config file's value into it.

    ``read`` raises ``ValueError`` or ``TypeError`` for anything else; the user is then told what was ``expected``.
    A kind with ``many`` yields tuples, and its flag may be repeated.
    """

    expected: str
    metavar: str
    read: Callable[[object], T]
    many: bool = False


def text(expected: str = "a text", metavar: str = "TEXT", check: Callable[[str], bool] | None = None) -> Kind[str]:
    """Any text but the empty one; ``check`` may narrow it."""

    def read(raw: object) -> str:
        value = _as_text(raw)
        if not value or (check is not None and not check(value)):
            raise ValueError
        return value

    return Kind(expected, metavar, read)


def texts(expected: str = "texts separated by commas, or a JSON list", metavar: str = "TEXT") -> Kind[tuple[str, ...]]:
    """Several texts: a repeated flag, a list in the config file, a JSON list, or one text with commas."""

    def read(raw: object) -> tuple[str, ...]:
        if isinstance(raw, list):
            return tuple(part for item in raw for part in (read(item) if isinstance(item, str) else (_as_text(item),)))
        value = _as_text(raw)
        if value.lstrip().startswith("["):
            return tuple(_as_text(item) for item in json.loads(value))
        return tuple(part.strip() for part in value.split(",") if part.strip())

    return Kind(expected, metavar, read, many=True)


def integer(low: int, high: int | None = None, metavar: str = "N") -> Kind[int]:
    """A whole number from ``low`` to ``high``, both included."""

    def read(raw: object) -> int:
        return _within(int(_as_text(raw)), low, high)

    return Kind(f"an integer {_range_in_words(low, high)}", metavar, read)


def number(low: float, high: float | None = None, metavar: str = "X", unit: str = "") -> Kind[float]:
    """A number from ``low`` to ``high``, both included; never NaN or infinite."""

    def read(raw: object) -> float:
        return _within(float(_as_text(raw)), low, high)

    what = f"a number of {unit}" if unit else "a number"
    return Kind(f"{what} {_range_in_words(low, high)}", metavar, read)


def seconds(low: float = 0) -> Kind[float]:
    """A duration in seconds."""
    return number(low, metavar="SECONDS", unit="seconds")


def size(low: int = 1, metavar: str = "SIZE") -> Kind[int]:
    """A count or a number of bytes, with an optional k, M, G or T that stands for a power of 1024."""

    def read(raw: object) -> int:
        match = _SIZE.fullmatch(_as_text(raw).strip())
        if match is None:
            raise ValueError
        value = float(match[1]) * 1024 ** _SIZE_POWERS[(match[2] or "").lower()]
        if value != int(value):
            raise ValueError
        return _within(int(value), low, None)

    return Kind(f"a size {_range_in_words(low, None)}, such as 8k, 512M or 2G", metavar, read)


def choice(literal: Any) -> Kind[Any]:
    """One of the strings of a ``Literal`` type; typed ``Any`` because the field's annotation is that same type."""
    values: tuple[str, ...] = get_args(literal)

    def read(raw: object) -> str:
        # YAML reads a bare off or on as a boolean, and "off" is an ordinary choice here.
        value = ("on" if raw else "off") if isinstance(raw, bool) else _as_text(raw)
        if value not in values:
            raise ValueError
        return value

    return Kind(_one_of(values), "{" + ",".join(values) + "}", read)


def switch() -> Kind[bool]:
    """On or off; its flag takes no value and has a ``--no-`` form."""

    def read(raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        value = _as_text(raw).strip().lower()
        if value not in _TRUE | _FALSE:
            raise ValueError
        return value in _TRUE

    return Kind("true or false", "", read)


def json_object() -> Kind[dict[str, Any]]:
    """A JSON object, or a mapping in the config file."""

    def read(raw: object) -> dict[str, Any]:
        value = raw if isinstance(raw, Mapping) else json.loads(_as_text(raw))
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise ValueError
        return dict(value)

    return Kind("a JSON object", "JSON", read)


def _as_text(raw: object) -> str:
    """Flags and variables are text already; a config file may hold a bare number where text is meant."""
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise TypeError
    return str(raw)


def _within(value: N, low: float, high: float | None) -> N:
    # Written so that NaN fails too.
    if not low <= value < float("inf") or (high is not None and value > high):
        raise ValueError
    return value


def _range_in_words(low: float, high: float | None) -> str:
    return f"of at least {low}" if high is None else f"between {low} and {high}"


def _one_of(values: tuple[str, ...]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} or {values[-1]}"
