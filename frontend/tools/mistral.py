"""``[TOOL_CALLS]`` and then a list of calls, or (newer models) ``name[ARGS]{...}`` for each call."""

from pagewire.frontend.tools.json_calls import read_calls
from pagewire.frontend.tools.json_values import pass_value
from pagewire.frontend.tools.outlet import Outlet
from pagewire.frontend.tools.reading import NotACall, Reader, find, read_word, skip_space

MARKER, ID_MARKER, ARGUMENTS_MARKER = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"


def read_mistral(out: Outlet, known: frozenset[str]) -> Reader[None]:
    """Read an answer. The marker announces calls, so their names need not be ``known``."""
    pending = ""
    while True:
        yield from find(out, MARKER, pending)
        try:
            char = yield from skip_space(out.hold)
            if char in "[{":
                pending = yield from read_calls(out, None, char)
            else:
                pending = yield from _read_named(out, char)
        except NotACall as no_call:
            pending = no_call.pending
        out.release()


def _read_named(out: Outlet, char: str) -> Reader[str]:
    """Read ``name[CALL_ID]id[ARGS]{...}``, of which both markers may be missing; return the pending character."""
    name, char = yield from read_word(out, char)
    if not name:
        raise NotACall(char)
    call_id = None
    marker, char = yield from _read_marker(out, char)
    if marker == ID_MARKER:
        call_id, char = yield from read_word(out, char)
        marker, char = yield from _read_marker(out, char)
    char = yield from skip_space(out.hold, char)
    if char != "{" or marker not in ("", ARGUMENTS_MARKER):
        raise NotACall(char)
    out.start(name, call_id)
    char = yield from pass_value(out.arguments, char)
    out.end_call()
    return char


def _read_marker(out: Outlet, char: str) -> Reader[tuple[str, str]]:
    """Read and hold a word in brackets, if there is one; return it and the character after it."""
    if char != "[":
        return "", char
    out.hold(char)
    word, char = yield from read_word(out, (yield))
    if char != "]":
        raise NotACall(char)
    out.hold(char)
    return f"[{word}]", (yield)
