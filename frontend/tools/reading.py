"""Reading a text that arrives in pieces, one character after the other.

The reader of a format is a generator that is sent characters. It reads like a parser of a whole text, and its answer
cannot depend on how the text was cut. Where it must look at a character to know that something has ended, it returns
that character as *pending*, and the caller begins with it; nothing is pending if it is empty.
"""

from collections.abc import Callable, Generator
from typing import TypeVar

from pagewire.frontend.tools.outlet import Outlet

T = TypeVar("T")
Reader = Generator[None, str, T]
Sink = Callable[[str], None]

_WORD_SIGNS = "_-."


class NotACall(Exception):
    """What looked like the beginning of a call is none: what was read of it is held in the outlet."""

    def __init__(self, pending: str = "") -> None:
        """``pending`` is the first character that does not fit and is not held; empty if all are."""
        super().__init__(pending)
        self.pending = pending


def skip_space(sink: Sink, pending: str = "") -> Reader[str]:
    """Give ``sink`` white space and return the character after it."""
    char = pending or (yield)
    while char.isspace():
        sink(char)
        char = yield
    return char


def find(out: Outlet, marker: str, pending: str = "") -> Reader[None]:
    """Pass text on until ``marker`` has been read, which is then held; the text begins with ``pending``."""
    window = ""
    while window != marker:
        char, pending = (pending[0], pending[1:]) if pending else ((yield), "")
        if not window and char != marker[0]:
            out.text(char)
            continue
        window += char
        out.hold(char)
        while not marker.startswith(window):
            out.text(out.unhold()[0])
            window = window[1:]
            out.hold(window)


def expect(out: Outlet, expected: str, char: str) -> Reader[None]:
    """Read and hold ``expected``, of which ``char`` was read already; raises NotACall for anything else."""
    for position, wanted in enumerate(expected):
        if position:
            char = yield
        if char != wanted:
            raise NotACall(char)
        out.hold(char)


def read_word(out: Outlet, char: str) -> Reader[tuple[str, str]]:
    """Read and hold letters, digits, ``_``, ``-`` and ``.``; return them and the character after them."""
    word = ""
    while char.isalnum() or char in _WORD_SIGNS:
        word += char
        out.hold(char)
        char = yield
    return word, char
