"""Grammars (in the Lark notation of llguidance) that leave a model no choice but to call a tool."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pagewire.frontend.grammar_frames import as_regex, framed
from pagewire.frontend.grammars.json_schema import ALLOWED_ESCAPES
from pagewire.frontend.tools.formats import CallLayout

# Models write JSON on one line; left free, small ones fill whole answers with white space.
_JSON_STYLE = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": ALLOWED_ESCAPES,
}


class CallableTool(Protocol):
    """A tool, as far as a grammar needs to know it."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def parameters(self) -> Mapping[str, Any]: ...  # noqa: D102


def call_grammar(
    layout: CallLayout,
    tools: Sequence[CallableTool],
    max_calls: int | None,
    special: Mapping[str, int],
    otherwise: str | None = None,
) -> str:
    """The grammar of one or more calls of ``tools``, with arguments that follow their schemas.

    ``special`` are the markers that are special tokens, with their ids: text cannot spell those. ``otherwise`` is the
    grammar of answers that the model may give instead of calls.
    """
    rules = _rules(layout, tools, max_calls, special)
    if otherwise is None:
        return f"start: calls\n{rules}"
    return framed(lambda other: f"start: calls | {other}\n{rules}", otherwise)


def text_with_calls(
    marker: str, layout: CallLayout, tools: Sequence[CallableTool], max_calls: int | None, special: Mapping[str, int]
) -> str:
    """The grammar of any text in which calls of ``tools`` follow their schemas.

    ``marker`` begins the layout and cannot stand in the text without a call.
    """
    if layout.opening:
        inner = replace(layout, opening=layout.opening.removeprefix(marker))
        most = max_calls
    else:
        inner = replace(layout, before=layout.before.removeprefix(marker))
        most = 1  # for each marker
    if marker in special:
        head, tail = rf"head: /(.|\n)*/ <[{special[marker]}]>", r"TAIL: /(.|\n)*/"
    else:
        pattern = as_regex(marker)
        # Lazy: it ends with the first marker that there is.
        head, tail = rf"head[lazy]: /(.|\n)*{pattern}/", rf"TAIL: /(.|\n)*/ & ~/(.|\n)*{pattern}(.|\n)*/"
    repeated = "?" if max_calls == 1 else "*"
    return "\n".join([f"start: (head calls){repeated} TAIL", head, tail, _rules(inner, tools, most, special)])


def _rules(layout: CallLayout, tools: Sequence[CallableTool], max_calls: int | None, special: Mapping[str, int]) -> str:
    """What ``calls`` are."""
    more = "" if max_calls == 1 else f"({_sequence(layout.separator, special)} call)*"
    rules = [
        f"calls: {_sequence(layout.opening, special)} call {more} {_sequence(layout.closing, special)}",
        f"call: {' | '.join(f'call_{index}' for index in range(len(tools)))}",
    ]
    for index, tool in enumerate(tools):
        before = _sequence(layout.before + tool.name + layout.between, special)
        rules.append(f"call_{index}: {before} arguments_{index} {_sequence(layout.after, special)}")
        rules.append(f"arguments_{index}: %json {json.dumps(_argument_schema(tool.parameters))}")
    return "\n".join(rules)


def _argument_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's schema with what goes without saying: arguments are an object, written on one line."""
    return {"type": "object", **parameters, "x-guidance": _JSON_STYLE}


def _sequence(text: str, special: Mapping[str, int]) -> str:
    """``text`` as a sequence of literals and special tokens."""
    return " ".join(f"<[{special[part]}]>" if part in special else json.dumps(part) for part in _parts(text, special))


def _parts(text: str, special: Iterable[str]) -> list[str]:
    pattern = "|".join(map(re.escape, special))
    parts = re.split(f"({pattern})", text) if pattern else [text]
    return [part for part in parts if part]
