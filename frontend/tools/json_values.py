"""JSON read character by character, as models write it: passed on while it comes, and forgiving."""

import json

from pagewire.frontend.surrogates import without_surrogates
from pagewire.frontend.tools.reading import NotACall, Reader, Sink

_ESCAPE_LENGTHS = {"u": 6}
_HIGH_SURROGATES = range(0xD800, 0xDC00)


def pass_value(sink: Sink, char: str, *, repair: bool = True) -> Reader[str]:
    """Give ``sink`` a JSON value as it is written; return the character after it if that had to be read.

    With ``repair``, a control character within a string, which JSON forbids and models write, becomes its escape
    sequence. ``<`` outside of strings ends any value: JSON has none there, but the end tags of calls begin with it.
    """
    if char not in '{["':
        return (yield from pass_scalar(sink, char))
    depth, in_string, escaped = 0, False, False
    while in_string or char != "<":
        sink(json.dumps(char)[1:-1] if repair and in_string and char < " " else char)
        if escaped:
            escaped = False
        elif in_string and char == "\\":
            escaped = True
        elif char == '"':
            in_string = not in_string
        elif not in_string:
            depth += (char in "{[") - (char in "}]")
        if depth <= 0 and not in_string:
            return ""
        char = yield
    return char


def pass_scalar(sink: Sink, char: str) -> Reader[str]:
    """Give ``sink`` a number, a literal, or whatever stands in its place; return the character after it."""
    while not (char.isspace() or char in ",;}]<"):
        sink(char)
        char = yield
    return char


def pass_string(sink: Sink) -> Reader[None]:
    """Give ``sink`` what a JSON string says, up to its closing quote; the opening one was read already."""
    high = ""  # the first half of a character that is written as two escape sequences
    while (char := (yield)) != '"':
        unit = (yield from _escape()) if char == "\\" else char
        if not high and len(unit) == 1 and ord(unit) in _HIGH_SURROGATES:
            high = unit
        else:
            sink(without_surrogates(high + unit))
            high = ""


def read_string(sink: Sink, char: str) -> Reader[str]:
    """Read a JSON string that begins with ``char``, give ``sink`` its raw characters, and return what it says.

    Raises NotACall if ``char`` is no quote. A string that JSON does not allow says nothing.
    """
    if char != '"':
        raise NotACall(char)
    raw, escaped = [char], False
    sink(char)
    while char != '"' or escaped or len(raw) == 1:
        escaped = char == "\\" and not escaped
        char = yield
        raw.append(char)
        sink(char)
    try:
        text: str = json.loads("".join(raw), strict=False)
    except ValueError:
        return ""
    return without_surrogates(text)


def _escape() -> Reader[str]:
    """What an escape sequence stands for, after its backslash; a broken one stands for itself."""
    sequence = "\\" + (yield)
    while len(sequence) < _ESCAPE_LENGTHS.get(sequence[1], 2):
        sequence += yield
    try:
        text: str = json.loads(f'"{sequence}"')
    except ValueError:
        return sequence
    return text
