"""Bounds on what a template may cost: time, sizes of values, widths of padding.

Jinja's sandbox protects the process from being read or changed, not from being kept busy. A template is therefore
compiled with a check in every loop body, macro, call and operator, and the few operations of Python that can make
something huge out of something small in a single step are measured before they run.
"""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from pagewire.frontend.templates.errors import TemplateError

# Characters (or list items) of any value a template builds, its output included. No prompt comes near: it is as much
# as a whole request body may have bytes.
MAX_SIZE = 32 * 2**20
# Padding, indentation and field widths; anything above is no formatting of text.
MAX_WIDTH = 10_000
MAX_INT_BITS = 4096

_PADDING_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
# Fields of the two ways to format. Texts may be long: nothing in them is read twice.
_PERCENT_FIELD = re.compile(r"[-#0 +]*+(?P<width>\*|\d*+)(?:\.(?P<precision>\*|\d*+))?+[hlL]?+")
_PARENTHESIS = re.compile(r"[()]")
_BRACES_FIELD = re.compile(r"\{[^{}:]*+:(?P<spec>[^{}]*+)(?P<nested>\{)?")
# A width or precision of five digits or more, or one taken from the arguments.
_WIDE = re.compile(r"\*|\d{5,}")
_WIDE_DIGITS = re.compile(r"\d{5,}")


class LimitError(TemplateError):
    """The template wanted more than it may have."""


class TimeLimitError(LimitError):
    """The template ran longer than it may."""


class Budget:
    """The time one rendering may still take."""

    __slots__ = ("_clock", "_deadline", "_seconds")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start the clock; ``seconds`` are left."""
        self._seconds = seconds
        self._clock = clock
        self._deadline = clock() + seconds

    def check(self) -> None:
        """Raise TimeLimitError when the time is over."""
        if self._clock() > self._deadline:
            raise TimeLimitError(f"the chat template took longer than {self._seconds:g} seconds")


def require_size(size: int) -> None:
    """Raise LimitError when a value of ``size`` characters or items is too large."""
    if size > MAX_SIZE:
        raise LimitError(f"the chat template builds a value of more than {MAX_SIZE} characters or items")


def require_width(*values: Any) -> None:
    """Raise LimitError when an integer among ``values`` is no sensible width."""
    for value in values:
        if isinstance(value, int) and value > MAX_WIDTH:
            raise LimitError(f"the chat template pads to a width of more than {MAX_WIDTH}")


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Refuse ``left operator right`` if the result would be huge."""
    if operator == "*":
        _check_product(left, right)
    elif operator == "+":
        if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
            require_size(len(left) + len(right))
    elif operator == "**":
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() * max(right, 0) > MAX_INT_BITS:
            raise LimitError("the chat template computes a number that is too large")
    elif operator == "%" and isinstance(left, str):
        check_percent_format(left)


def _check_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > MAX_INT_BITS:
            raise LimitError("the chat template computes a number that is too large")
    elif isinstance(left, str | list | tuple) and isinstance(right, int):
        require_size(len(left) * right)
    elif isinstance(left, int) and isinstance(right, str | list | tuple):
        require_size(left * len(right))


def check_percent_format(text: str) -> None:
    """Refuse a %-format string with a field that is wider than any text."""
    place = text.find("%")
    while place >= 0:
        start = _end_of_key(text, place + 1)
        field = _PERCENT_FIELD.match(text, start)
        if field and (_WIDE.match(field["width"]) or _WIDE.match(field["precision"] or "")):
            raise LimitError(f"the chat template pads to a width of more than {MAX_WIDTH}")
        # What stands there is the conversion, which may be another percent sign.
        place = text.find("%", (field.end() if field else start) + 1)


def _end_of_key(text: str, start: int) -> int:
    """Where a field goes on after its key, which may hold parentheses; Python refuses one that is not closed."""
    if not text.startswith("(", start):
        return start
    depth = 0
    for found in _PARENTHESIS.finditer(text, start):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return found.end()
    return len(text)


def _has_wide_field(text: str) -> bool:
    return any(field["nested"] or _WIDE_DIGITS.search(field["spec"]) for field in _BRACES_FIELD.finditer(text))


def check_method(method: Any, args: Sequence[Any]) -> None:
    """Refuse a call of a string's method if the result would be huge."""
    # The sandbox wraps str.format; the method itself is then under __wrapped__.
    method = getattr(method, "__wrapped__", method)
    text = getattr(method, "__self__", None)
    if not isinstance(text, str):
        return
    name = method.__name__
    if name in _PADDING_METHODS:
        require_width(*args)
    elif name in ("format", "format_map") and _has_wide_field(text):
        raise LimitError(f"the chat template pads to a width of more than {MAX_WIDTH}")
    elif name == "replace" and len(args) >= 2:
        check_replace(text, args[0], args[1])
    elif name == "join" and args:
        check_join(text, args[0])


def check_replace(text: Any, old: Any, new: Any, *_: Any) -> None:
    """Refuse replacing ``old`` by ``new`` in ``text`` if the result would be huge."""
    if isinstance(text, str) and isinstance(old, str) and isinstance(new, str):
        require_size(len(text) + (text.count(old) if old else len(text) + 1) * len(new))


def check_join(separator: Any, items: Any) -> None:
    """Refuse joining ``items`` if the result would be huge."""
    if isinstance(separator, str) and isinstance(items, list | tuple | range):
        sizes = sum(len(item) for item in items if isinstance(item, str))
        require_size(sizes + len(separator) * len(items))
    elif isinstance(separator, str) and isinstance(items, str):
        require_size(len(items) * (1 + len(separator)))
