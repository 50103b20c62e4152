"""``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``: Hermes, Qwen, SmolLM and many others."""

from pagewire.frontend.tools.json_calls import read_calls
from pagewire.frontend.tools.outlet import Outlet
from pagewire.frontend.tools.reading import NotACall, Reader, expect, find, skip_space

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def read_hermes(out: Outlet, known: frozenset[str]) -> Reader[None]:
    """Read an answer. The tag announces a call, so its name need not be ``known``."""
    pending = ""
    while True:
        yield from find(out, OPEN, pending)
        try:
            char = yield from skip_space(out.hold)
            pending = yield from read_calls(out, None, char)
        except NotACall as no_call:
            out.release()
            pending = no_call.pending
        else:
            pending = yield from _read_close(out, pending)


def _read_close(out: Outlet, pending: str) -> Reader[str]:
    """Read the closing tag, which models forget at times; return what was read in its place."""
    try:
        char = yield from skip_space(out.hold, pending)
        yield from expect(out, CLOSE, char)
    except NotACall as no_tag:
        return out.unhold() + no_tag.pending
    out.unhold()
    return ""
