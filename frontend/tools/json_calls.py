"""Calls written as JSON objects, ``{"name": ..., "arguments": {...}}``: one, several, or a list of them."""

from collections.abc import Container

from pagewire.frontend.tools.json_values import pass_scalar, pass_string, pass_value, read_string
from pagewire.frontend.tools.outlet import Outlet
from pagewire.frontend.tools.reading import NotACall, Reader, skip_space

_ARGUMENT_KEYS = ("arguments", "parameters")
# What else an unmarked object may say and still be a call.
_HARMLESS_KEYS = ("type", "id")
_SEPARATORS = ",;"


def read_calls(out: Outlet, known: Container[str] | None, char: str) -> Reader[str]:
    """Read a call and those that follow it, or a list of calls, from ``char`` on; return the pending character.

    What was read after the last call and before that character is held. ``known`` as for ``JsonCall``. Raises NotACall
    when something else comes where a call would have to begin.
    """
    in_list = char == "["
    if in_list:
        out.hold(char)
        char = yield from skip_space(out.hold)
    while True:
        fault = yield from JsonCall(out, known).read(char)
        if fault:
            return fault
        char = yield from skip_space(out.hold)
        if in_list and char == "]":
            out.unhold()
            return ""
        if char in _SEPARATORS:
            out.hold(char)
            char = yield from skip_space(out.hold)
        if char != "{":
            return char


class JsonCall:
    """Reads one call.

    A call is *marked* where the format announces it, so that any object with a name is one. An unmarked object is a
    call only if it has a name of ``known``, arguments, and nothing that calls do not have: an answer may be JSON too.
    Once a call has begun it cannot be taken back; a fault after that ends it, with the arguments as far as they came.
    It is complete with its arguments: models forget the brace after them.
    """

    def __init__(self, out: Outlet, known: Container[str] | None) -> None:
        """``known`` are the names of unmarked calls; None is for marked ones."""
        self._out = out
        self._known = known
        self._name = ""
        self._started = False
        self._any_arguments = False
        self._early: list[str] = []  # arguments that came before the name

    def read(self, char: str) -> Reader[str]:
        """Read an object whose brace is ``char``; return the character at which a fault ended it, or nothing.

        Raises NotACall, with the object as far as it was read held in the outlet.
        """
        if char != "{":
            raise NotACall(char)
        self._skip(char)
        while True:
            char = yield from skip_space(self._skip)
            if char == '"':
                char = yield from self._entry(char)
            if char not in ",}":
                return self._end(fault=char)
            self._skip(char)
            if char == "}":
                return self._end(fault="")

    def _entry(self, quote: str) -> Reader[str]:
        """Read a key and its value, return the character after them."""
        key = yield from read_string(self._skip, quote)
        char = yield from skip_space(self._skip)
        if char != ":":
            return char
        self._skip(char)
        char = yield from skip_space(self._skip)
        if key == "name" and char == '"' and not self._name:
            self._set_name((yield from read_string(self._skip, char)))
            return (yield from skip_space(self._skip))
        if key in _ARGUMENT_KEYS and not self._any_arguments:
            char = yield from self._read_arguments(char)
        elif self._known is None or self._started or key in _HARMLESS_KEYS:
            char = yield from pass_value(self._skip, char, repair=False)
        else:
            raise NotACall(char)
        return (yield from skip_space(self._skip, char))

    def _set_name(self, name: str) -> None:
        if self._known is not None and name not in self._known:
            raise NotACall()
        self._name = name
        if name and (self._known is None or self._any_arguments):
            self._start()

    def _read_arguments(self, char: str) -> Reader[str]:
        self._any_arguments = True
        if self._name and not self._started:
            self._start()
        if not self._started:
            return (yield from self._read_early(char))
        char = yield from self._pass_arguments(char)
        self._out.end_call()
        return char

    def _pass_arguments(self, char: str) -> Reader[str]:
        if char == '"':
            # Some models write the arguments as OpenAI's API does: as a string that holds JSON.
            yield from pass_string(self._out.arguments)
            return ""
        if char in "{[":
            return (yield from pass_value(self._out.arguments, char))
        scalar: list[str] = []
        char = yield from pass_scalar(scalar.append, char)
        self._out.arguments(_or_nothing("".join(scalar)))
        return char

    def _read_early(self, char: str) -> Reader[str]:
        if char == '"':
            self._early.append((yield from read_string(self._skip, char)))
            return ""

        def keep(text: str) -> None:
            self._skip(text)
            self._early.append(text)

        return (yield from pass_value(keep, char, repair=False))

    def _start(self) -> None:
        self._started = True
        self._out.start(self._name)
        if self._early:
            self._out.arguments(_or_nothing("".join(self._early)))
            self._out.end_call()

    def _end(self, fault: str) -> str:
        if not self._started:
            raise NotACall(fault)
        if not self._any_arguments:
            self._out.arguments("{}")
            self._out.end_call()
        return fault

    def _skip(self, text: str) -> None:
        """Syntax: it is text again if this turns out to be no call, and nothing once the call has begun."""
        if not self._started:
            self._out.hold(text)


def _or_nothing(scalar: str) -> str:
    """A call without arguments is an empty object to clients."""
    return "{}" if scalar in ("", "null", "None") else scalar
