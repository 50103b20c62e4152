"""``[name(city='Rome', days=3), other()]``: a Python list of calls, as Llama 4 and some small models write it."""

from pagewire.frontend.tools.outlet import Outlet
from pagewire.frontend.tools.python_values import keyword_as_json
from pagewire.frontend.tools.reading import NotACall, Reader, expect, read_word, skip_space
from pagewire.frontend.tools.unmarked import read_lines

START_TAG, END_TAG = "<|python_start|>", "<|python_end|>"


def read_pythonic(out: Outlet, known: frozenset[str]) -> Reader[None]:
    """Read an answer. A list is one of calls if it begins with a name of ``known`` and a parenthesis.

    Arguments become JSON one by one, as soon as each is complete. One that is no literal is passed on as written.
    """
    return read_lines(out, "[", START_TAG, lambda char: _read_list(out, known, char))


def _read_list(out: Outlet, known: frozenset[str], char: str) -> Reader[str]:
    yield from expect(out, "[", char)
    char = ","
    while char == ",":
        name, char = yield from read_word(out, (yield from skip_space(out.hold)))
        if char != "(" or name not in known:
            raise NotACall(char)
        out.start(name)
        yield from _read_arguments(out)
        out.end_call()
        char = yield from skip_space(out.text)
        if char == ",":
            out.hold(char)
    if char != "]":
        return char
    return (yield from _read_end_tag(out))


def _read_arguments(out: Outlet) -> Reader[None]:
    """Read up to the closing parenthesis."""
    opening = "{"
    while (char := (yield from skip_space(lambda _: None))) != ")":
        # Cut in the middle, an argument is passed on as far as it came.
        out.hold(opening)
        end = yield from _read_argument(out, char)
        written = out.unhold().removeprefix(opening)
        out.arguments(opening + keyword_as_json(written))
        opening = ", "
        if end == ")":
            break
    out.arguments("{}" if opening == "{" else "}")


def _read_argument(out: Outlet, char: str) -> Reader[str]:
    """Hold an argument and return the comma or parenthesis that ends it."""
    depth, quote, escaped = 0, "", False
    while quote or depth or char not in ",)":
        out.hold(char)
        if escaped:
            escaped = False
        elif quote:
            escaped = char == "\\"
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char in "([{") - (char in ")]}")
        char = yield
    return char


def _read_end_tag(out: Outlet) -> Reader[str]:
    char = yield from skip_space(out.text)
    if char != END_TAG[0]:
        return char
    try:
        yield from expect(out, END_TAG, char)
    except NotACall as no_tag:
        out.release()
        return no_tag.pending
    out.unhold()
    return ""
