"""Tools written into the messages reach a model whose template knows of none."""

from typing import Any

from pagewire.frontend.template import ChatTemplate
from pagewire.frontend.templates.source import read_template
from pagewire.frontend.tools.in_text import with_tools_in_text

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def call(city: str) -> dict[str, Any]:
    return {"id": city, "type": "function", "function": {"name": "weather", "arguments": f'{{"city": "{city}"}}'}}


HISTORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Zürich and Bern?"},
    {"role": "assistant", "content": None, "tool_calls": [call("Zürich"), call("Bern")]},
    {"role": "tool", "content": "sun", "tool_call_id": "Zürich"},
    {"role": "tool", "content": [{"type": "text", "text": "rain"}], "tool_call_id": "Bern"},
    {"role": "assistant", "content": "Sun and rain."},
    {"role": "user", "content": "Thanks."},
]


def render(name: str, messages: Any, tools: Any = None) -> str:
    template = ChatTemplate(read_template(f"name:{name}", {}).text, name)
    return template.render(messages, add_generation_prompt=True, tools=tools)


def test_the_prompt_is_that_of_a_template_with_tools() -> None:
    assert render("chatml", with_tools_in_text(HISTORY, [TOOL])) == render("tool_use", HISTORY, [TOOL])
    assert render("chatml", with_tools_in_text(HISTORY[1:], [TOOL])) == render("tool_use", HISTORY[1:], [TOOL])


def test_earlier_calls_are_told_even_if_the_model_is_shown_no_tools() -> None:
    assert render("chatml", with_tools_in_text(HISTORY, [])) == render("tool_use", HISTORY)


def test_calls_that_are_broken_stay_as_they_were_written() -> None:
    broken = [{"function": {"name": "f", "arguments": "{x"}}, {"function": {"name": "g"}}, "h"]
    told = with_tools_in_text([{"role": "assistant", "content": "So:", "tool_calls": broken}], [TOOL])
    assert told[1]["content"] == (
        'So:\n<tool_call>\n{"name": "f", "arguments": "{x"}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>\n<tool_call>\n"h"\n</tool_call>'
    )


def test_half_a_character_in_arguments_is_replaced() -> None:
    calls = [{"function": {"name": "f", "arguments": r'{"a": "\ud800"}'}}]
    told = with_tools_in_text([{"role": "assistant", "tool_calls": calls}], [])
    assert "\ufffd" in told[0]["content"]


def test_the_clients_messages_are_not_touched() -> None:
    before = repr(HISTORY)
    with_tools_in_text(HISTORY, [TOOL])
    assert repr(HISTORY) == before
