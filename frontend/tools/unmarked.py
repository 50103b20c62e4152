"""Calls that nothing announces: JSON, or a Python list, at the beginning of a line."""

from collections.abc import Callable

from pagewire.frontend.tools.json_calls import read_calls
from pagewire.frontend.tools.outlet import Outlet
from pagewire.frontend.tools.reading import NotACall, Reader, expect, skip_space

LLAMA_TAG = "<|python_tag|>"
# Reads calls whose first character is given, and returns the pending character.
ReadCalls = Callable[[str], Reader[str]]


def read_json(out: Outlet, known: frozenset[str]) -> Reader[None]:
    """Read an answer in which a JSON object, or a list of them, is a call if it looks like one of ``known``."""
    return read_lines(out, "{[", "", lambda char: read_calls(out, known, char))


def read_llama3_json(out: Outlet, known: frozenset[str]) -> Reader[None]:
    """Read an answer with calls as Llama 3 writes them: JSON objects, perhaps after a tag, separated by ``;``."""
    return read_lines(out, "{[", LLAMA_TAG, lambda char: read_calls(out, known, char))


def read_lines(out: Outlet, openings: str, tag: str, read: ReadCalls) -> Reader[None]:
    """Read an answer in which calls begin a line with one of ``openings``, perhaps after ``tag`` on the same line."""
    pending, line_start = "", True
    while True:
        char = pending or (yield)
        pending = ""
        if not line_start or char not in openings + tag[:1]:
            out.text(char)
            line_start = char == "\n" or (line_start and char.isspace())
            continue
        try:
            if char == tag[:1]:
                yield from expect(out, tag, char)
                char = yield from skip_space(out.hold)
            pending = yield from read(char)
        except NotACall as no_call:
            pending, line_start = no_call.pending, False
        out.release()
