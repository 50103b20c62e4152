"""Grammars of enforced calls accept what the format's reader reads as calls, and nothing else."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from pagewire.frontend.tools.events import CallArguments, CallStart
from pagewire.frontend.tools.formats import FORMATS, CallLayout, enforceable
from pagewire.frontend.tools.grammar import call_grammar, text_with_calls
from pagewire.frontend.tools.parser import ToolParser
from tests.toy_tokenizer import IM_END, IM_START, tokenizer_json

llguidance = pytest.importorskip("llguidance")


@dataclass
class Tool:
    name: str
    parameters: dict[str, Any] = field(default_factory=dict)


TOOLS = [
    Tool(
        "get_weather", {"properties": {"city": {"$ref": "#/$defs/city"}}, "required": ["city"], "$defs": {"city": {}}}
    ),
    Tool("now", {"type": "object", "properties": {}, "additionalProperties": False}),
]
FORCED = {
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    '\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    "llama3_json": '{"name": "get_weather", "parameters": {"city": "Rome"}}; {"name": "now", "parameters": {}}',
    "mistral": '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Rome"}}, '
    '{"name": "now", "arguments": {}}]',
    "mistral_args": '[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}[TOOL_CALLS]now[ARGS]{}',
    "pythonic": '[{"name": "get_weather", "parameters": {"city": "Rome"}}, {"name": "now", "parameters": {}}]',
    "json": '[{"name": "get_weather", "parameters": {"city": "Rome"}}, {"name": "now", "parameters": {}}]',
}


def accepts(grammar: str, written: list[int]) -> bool:
    """Whether the tokens are a whole text of the grammar."""
    tokenizer = llguidance.LLTokenizer(tokenizer_json(), eos_token=IM_END)
    matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(grammar))
    assert not matcher.get_error()
    return matcher.try_consume_tokens(written) == len(written) and matcher.is_accepting()


def layout_of(name: str) -> CallLayout:
    """How calls of a format are written if they are enforced."""
    layout = enforceable(FORMATS[name]).layout
    assert layout
    return layout


def test_every_format_is_covered() -> None:
    assert FORCED.keys() == FORMATS.keys()


@pytest.mark.parametrize(("name", "written"), FORCED.items())
def test_what_the_grammar_allows_is_read_as_calls(name: str, written: str) -> None:
    tool_format = enforceable(FORMATS[name])
    parser = ToolParser(tool_format, ["get_weather", "now"])

    events = [*parser.feed(written), *parser.finish()]

    assert accepts(call_grammar(layout_of(name), TOOLS, None, {}), list(written.encode()))
    assert [event.name if isinstance(event, CallStart) else event.text for event in events] == [
        *("get_weather", '{"city": "Rome"}', "now", "{}")
    ]
    assert isinstance(events[-1], CallArguments)


@pytest.mark.parametrize(("name", "written"), FORCED.items())
def test_text_wrong_arguments_and_calls_above_the_limit_are_impossible(name: str, written: str) -> None:
    layout = layout_of(name)
    grammar = call_grammar(layout, TOOLS, None, {})
    assert not accepts(grammar, list(b"Hello"))
    assert not accepts(grammar, list(written.replace('{"city": "Rome"}', "{}").encode()))
    assert not accepts(grammar, list(written.replace("now", "never").encode()))
    assert not accepts(call_grammar(layout, TOOLS, 1, {}), list(written.encode()))


def test_markers_that_are_special_tokens_are_written_as_such() -> None:
    grammar = call_grammar(layout_of("mistral_args"), TOOLS, 1, {"[TOOL_CALLS]": IM_START})
    assert accepts(grammar, [IM_START, *b"now[ARGS]{}"])
    assert not accepts(grammar, list(b"[TOOL_CALLS]now[ARGS]{}"))


def test_an_answer_of_another_grammar_may_come_instead_of_calls() -> None:
    grammar = call_grammar(layout_of("hermes"), TOOLS, None, {}, otherwise='start: "yes"')
    assert accepts(grammar, list(b"yes"))
    assert accepts(grammar, list(FORCED["hermes"].encode()))
    assert not accepts(grammar, list(b"no"))


def test_grammars_around_grammars_do_not_confuse_their_names() -> None:
    inner = call_grammar(layout_of("hermes"), TOOLS, None, {}, otherwise='start: "yes"')
    outer = call_grammar(layout_of("json"), TOOLS, None, {}, otherwise=inner)
    for written in ("yes", FORCED["hermes"], FORCED["json"]):
        assert accepts(outer, list(written.encode()))


@pytest.mark.parametrize("name", ["hermes", "mistral", "mistral_args"])
def test_calls_within_free_text_follow_their_schemas(name: str) -> None:
    marker, layout = FORMATS[name].markers[0], layout_of(name)
    grammar = text_with_calls(marker, layout, TOOLS, None, {})
    written = FORCED[name]
    for text in ("", "Hello <there>\n[", written, f"So:\n{written}\nand {written} Done."):
        assert accepts(grammar, list(text.encode()))
    assert not accepts(grammar, list(f"{marker} is a marker".encode()))
    assert not accepts(grammar, list(written.replace('{"city": "Rome"}', "{}").encode()))
    assert not accepts(text_with_calls(marker, layout, TOOLS, 1, {}), list(f"{written} {written}".encode()))


def test_a_marker_that_is_a_special_token_begins_calls_within_free_text() -> None:
    grammar = text_with_calls("[TOOL_CALLS]", layout_of("mistral_args"), TOOLS, None, {"[TOOL_CALLS]": IM_START})
    assert accepts(grammar, [*b"[TOOL_CALLS] is text", IM_START, *b"now[ARGS]{}"])
    assert not accepts(grammar, [*b"So:", IM_START, *b"never[ARGS]{}"])
