"""What models write, and what becomes of it."""

import itertools
import json
import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagewire.frontend.tools.events import CallArguments, CallStart, Event, Text
from pagewire.frontend.tools.formats import FORMATS, ToolFormat, recognise
from pagewire.frontend.tools.parser import ToolParser

NAMES = ("get_weather", "now")
ROME = ("get_weather", '{"city": "Rome"}')
NOW = ("now", "{}")
HERMES_ROME = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
JSON_ROME = '{"name": "get_weather", "parameters": {"city": "Rome"}}'

# Per format: what the model writes, the text that is left, the calls.
ANSWERS = {
    "hermes": [
        ("Hello <b>there</b>.", "Hello <b>there</b>.", []),
        (HERMES_ROME, "", [ROME]),
        (f"Let me look.\n\n{HERMES_ROME}\n{HERMES_ROME}", "Let me look.", [ROME, ROME]),
        (f"{HERMES_ROME}\n\nDone.\n", "Done.", [ROME]),
        (f"One {HERMES_ROME} two", "One two", [ROME]),
        ('<tool_call>{"name": "now"}</tool_call>', "", [NOW]),
        ('<tool_call>{"name": "now", "arguments": null}</tool_call>', "", [NOW]),
        ('<tool_call>{"name": "now", "arguments": "{\\"a\\": \\"\\\\u00e9\\"}"}', "", [("now", '{"a": "\\u00e9"}')]),
        ('<tool_call>{"arguments": {"city": "Rome"}, "name": "get_weather"}</tool_call>', "", [ROME]),
        ('<tool_call>{"id": 3, "name": "unknown", "arguments": {}}</tool_call>', "", [("unknown", "{}")]),
        ('<tool_call>[{"name": "now", "arguments": {}}]</tool_call>', "", [NOW]),
        ('<tool_call>{"name": "now", "arguments": {"a": "</tool_call>"}}', "", [("now", '{"a": "</tool_call>"}')]),
        # The brackets do not close, a quote is missing, the tag is missing.
        ('<tool_call>{"name": "now", "arguments": {"a": [1}</tool_call>!', "!", [("now", '{"a": [1}')]),
        ('<tool_call>{"name": "now", "arguments": {"a": "1}</tool_call>', "", [("now", '{"a": "1}</tool_call>')]),
        ('<tool_call>{"name": "now", "arguments": {}<tool_call>{"name": "now"}', "", [NOW, NOW]),
        ('<tool_call>{"name": "now", "arguments": {}}}</tool_call>', "}</tool_call>", [NOW]),
        ('<tool_call>{"name": "now", "arguments": {"a": "x\ny"}}', "", [("now", '{"a": "x\\ny"}')]),
        # Only looks like a call.
        ("<tool_call> is a tag", "<tool_call> is a tag", []),
        ("<tool_call><tool_call>{}</tool_call>", "<tool_call><tool_call>{}</tool_call>", []),
        ('<tool_call>{"name": ""}', '<tool_call>{"name": ""}', []),
        ('<tool_call>{"city": "Rome"} ', '<tool_call>{"city": "Rome"} ', []),
        ("a <tool_cal", "a <tool_cal", []),
        (f"<tool_{HERMES_ROME}", "<tool_", [ROME]),
        (f"<tool_call>{HERMES_ROME}", "<tool_call>", [ROME]),
        # Cut by the limit of tokens.
        ('<tool_call>{"name": "get_weather", "arguments": {"city": "Ro', "", [("get_weather", '{"city": "Ro')]),
        ('<tool_call>{"name": "get_weather", "argum', "", [("get_weather", "")]),
        ('<tool_call>{"name": "get_wea', '<tool_call>{"name": "get_wea', []),
    ],
    "llama3_json": [
        (JSON_ROME, "", [ROME]),
        (f"<|python_tag|>{JSON_ROME}", "", [ROME]),
        (f'{JSON_ROME}; {{"type": "function", "name": "now", "parameters": {{}}}}', "", [ROME, NOW]),
        (f"{JSON_ROME}\n{JSON_ROME}", "", [ROME, ROME]),
        (f"I will ask.\n{JSON_ROME}", "I will ask.", [ROME]),
        ("<|python_tag|>print(1)", "<|python_tag|>print(1)", []),
        (f"Write {JSON_ROME}", f"Write {JSON_ROME}", []),
    ],
    "json": [
        (f'[{JSON_ROME}, {{"name": "now", "arguments": {{}}}}]', "", [ROME, NOW]),
        (f"{JSON_ROME}, and so on", ", and so on", [ROME]),
        ('{"name": "somebody", "parameters": {}}', '{"name": "somebody", "parameters": {}}', []),
        ('{"name": "now", "unit": "s"}', '{"name": "now", "unit": "s"}', []),
        ('{"name": "now"}', '{"name": "now"}', []),
        ('{"a": 1}\n{"b": 2}', '{"a": 1}\n{"b": 2}', []),
        ('{"name": "now", "parameters": {}, "unit": "s"} Hm.', "Hm.", [NOW]),
        ("[1, 2]", "[1, 2]", []),
        ("{{{", "{{{", []),
    ],
    "mistral": [
        (f"[TOOL_CALLS] [{JSON_ROME}]", "", [ROME]),
        (f'[TOOL_CALLS][{JSON_ROME}, {{"name": "now", "arguments": {{}}}}]', "", [ROME, NOW]),
        (f'[TOOL_CALLS]get_weather[ARGS]{ROME[1]}[TOOL_CALLS]now[CALL_ID]abc[ARGS]{{}}', "", [ROME, NOW]),
        (f"So: [TOOL_CALLS]get_weather{ROME[1]}", "So:", [ROME]),
        ("[TOOL_CALLS] none", "[TOOL_CALLS] none", []),
        ("[TOOL_CALLS]now[X]{}", "[TOOL_CALLS]now[X]{}", []),
        ("[TOOL", "[TOOL", []),
    ],
    "pythonic": [
        ("[get_weather(city='Rome')]", "", [ROME]),
        ("<|python_start|>[get_weather(city='Rome'), now()]<|python_end|>", "", [ROME, NOW]),
        ("[now(a=[1, 2.5], b={'x': None}, c=\"it's, (ok)\", d=true)]", "", [
            ("now", '{"a": [1, 2.5], "b": {"x": null}, "c": "it\'s, (ok)", "d": true}')
        ]),
        ("[1, 2, 3]", "[1, 2, 3]", []),
        ("[nowhere()]", "[nowhere()]", []),
        ("[now(a=b)]", "", [("now", "{a=b}")]),
        ("[now(a=1, b='x", "", [("now", "{\"a\": 1, b='x")]),
        ("[now(a=1e999)]", "", [("now", "{a=1e999}")]),
    ],
}  # fmt: skip
CASES = [(name, *case) for name, cases in ANSWERS.items() for case in cases]


def outcome(events: Iterable[Event]) -> tuple[str, list[tuple[str, str]]]:
    """The joined text and calls; fails if the calls are not numbered as clients need it."""
    text, calls = "", list[tuple[str, str]]()
    for event in events:
        match event:
            case Text(piece):
                text += piece
            case CallStart(index, call_id, name):
                assert index == len(calls)
                assert call_id
                calls.append((name, ""))
            case CallArguments(index, piece):
                assert index == len(calls) - 1
                calls[index] = (calls[index][0], calls[index][1] + piece)
    return text, calls


def parse(tool_format: ToolFormat, pieces: Iterable[str], max_calls: int | None = None) -> list[Event]:
    """All events of an answer that comes in pieces."""
    parser = ToolParser(tool_format, NAMES, max_calls)
    return [*itertools.chain.from_iterable(map(parser.feed, pieces)), *parser.finish()]


@pytest.mark.parametrize(("name", "written", "text", "calls"), CASES)
def test_an_answer_is_split_into_text_and_calls(
    name: str, written: str, text: str, calls: list[tuple[str, str]]
) -> None:
    assert outcome(parse(FORMATS[name], [written])) == (text, calls)


@pytest.mark.parametrize(("name", "written", "text", "calls"), CASES)
def test_where_an_answer_is_cut_into_pieces_changes_nothing(
    name: str, written: str, text: str, calls: list[tuple[str, str]]
) -> None:
    for cut in range(len(written) + 1):
        assert outcome(parse(FORMATS[name], [written[:cut], written[cut:]])) == (text, calls)
    assert outcome(parse(FORMATS[name], written)) == (text, calls)


FRAGMENTS = (
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", "<|python_start|>", "now", "now("),
    *('{"name": "now", ', '"arguments": ', '"parameters": ', "{", "}", "[", "]", ")", ", ", ": ", '"', "'", "\\", "x="),
    *("\n", " ", "<", "\\ud83d", "\\u00e", "é", "null", "1", ";", "\x00"),
)


@given(st.sampled_from(sorted(FORMATS)), st.lists(st.sampled_from(FRAGMENTS), max_size=25), st.data())
def test_any_text_in_any_pieces_gives_the_same_and_can_be_sent(
    name: str, parts: list[str], data: st.DataObject
) -> None:
    written = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=6)))
    pieces = [written[a:b] for a, b in itertools.pairwise([0, *cuts, len(written)])]

    whole = outcome(parse(FORMATS[name], [written]))

    assert outcome(parse(FORMATS[name], pieces)) == whole
    json.dumps(whole, ensure_ascii=False).encode()
    if not whole[1]:
        assert whole[0] == written


def feed(parser: ToolParser, text: str) -> list[str]:
    """What a piece of text adds, without ids and numbers."""
    return [event.name if isinstance(event, CallStart) else event.text for event in parser.feed(text)]


def test_names_and_arguments_are_passed_on_as_they_come() -> None:
    parser = ToolParser(FORMATS["hermes"], NAMES)

    assert feed(parser, "Well. <tool_") == ["Well."]
    assert feed(parser, 'call>\n{"name": "get_we') == []
    assert feed(parser, 'ather", "argum') == ["get_weather"]
    assert feed(parser, 'ents": {"city": "Ro') == ['{"city": "Ro']
    assert feed(parser, 'me"}}</tool') == ['me"}']
    assert feed(parser, "_call> Bye") == [" Bye"]


def test_text_that_cannot_become_a_call_is_not_kept_back() -> None:
    for name, tool_format in FORMATS.items():
        parser = ToolParser(tool_format, NAMES)
        assert feed(parser, "1 < 2, [3] {4}") == ["1 < 2, [3] {4}"], name


def test_calls_above_the_allowed_number_are_left_out() -> None:
    events = parse(FORMATS["hermes"], [f"{HERMES_ROME}{HERMES_ROME} and more"], max_calls=1)
    assert outcome(events) == ("and more", [ROME])


@pytest.mark.parametrize(
    ("name", "written", "is_inside"),
    [
        ("hermes", '<tool_call>{"name": "now", "arguments": {"a": 1', True),
        ("hermes", '<tool_call>{"name": "now", "argum', True),
        # The brace of the call, which models forget, and its tag say nothing.
        ("hermes", '<tool_call>{"name": "now", "arguments": {"a": 1}', False),
        ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "now"', False),
        ("mistral_args", '[TOOL_CALLS]now[ARGS]{"a": 1}', False),
        ("mistral_args", '[TOOL_CALLS]now[ARGS]{"a": 1}[TOOL_CALLS]now[ARGS]{', True),
        ("pythonic", "[now(a=1", True),
        ("pythonic", "[now(a=1)", False),
    ],
)
def test_a_call_is_complete_when_its_arguments_are(name: str, written: str, is_inside: bool) -> None:
    parser = ToolParser(FORMATS[name], NAMES)
    parser.feed(written)
    parser.finish()
    assert parser.is_inside_call == is_inside


def test_every_call_has_an_id_of_its_own_in_the_shape_its_template_takes() -> None:
    for name, pattern in (("hermes", r"call_[0-9a-f]{24}"), ("mistral", r"[A-Za-z0-9]{9}")):
        ids = {FORMATS[name].new_id() for _ in range(50)}
        assert len(ids) == 50
        assert all(re.fullmatch(pattern, call_id) for call_id in ids)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ tools }} <tool_call></tool_call>", "hermes"),
        ("[AVAILABLE_TOOLS]{{ tools }} [TOOL_CALLS]", "mistral"),
        ("[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}", "mistral_args"),
        ('Respond in the format {"name": function name, "parameters": dictionary}', "llama3_json"),
        ("<|python_tag|>", "llama3_json"),
        ("[func_name1(params_name1=params_value1)]", "pythonic"),
        ("{{ messages }}", "json"),
    ],
)
def test_the_format_is_recognised_from_what_the_template_says(template: str, name: str) -> None:
    assert recognise(template).name == name
