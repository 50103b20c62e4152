from typing import Any

import pytest

from pagewire.frontend.templates.errors import TemplateError
from pagewire.frontend.templates.messages import content_text, plain, prepare_messages


def prepare(
    *messages: dict[str, Any], content_format: Any = "string", keep_strings: bool = False
) -> list[dict[str, Any]]:
    return prepare_messages(messages, content_format, keep_strings=False)


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}


def test_any_role_and_further_fields_reach_the_template() -> None:
    message = {"role": "meta-current_date", "content": "2023-10-20", "name": "x", "weights": [1, {"a": None}]}
    assert prepare(message) == [message]


def test_a_field_without_a_value_is_absent() -> None:
    assert prepare({"role": "user", "content": "x", "name": None}) == [{"role": "user", "content": "x"}]


@pytest.mark.parametrize("content", [{"content": None}, {}])
def test_an_assistant_that_only_calls_tools_has_empty_content(content: dict[str, Any]) -> None:
    [message] = prepare({"role": "assistant", "tool_calls": [call("{}")], **content})
    assert message["content"] == ""


@pytest.mark.parametrize("thought", [{}, {"reasoning_content": "Hm"}])
def test_an_assistant_that_said_nothing_has_empty_content(thought: dict[str, Any]) -> None:
    [message] = prepare({"role": "assistant", **thought})
    assert message["content"] == ""


@pytest.mark.parametrize("empty", [[], None])
def test_an_empty_list_of_tool_calls_changes_nothing(empty: Any) -> None:
    message = {"role": "assistant", "content": "Hi there"}
    assert prepare({**message, "tool_calls": empty}) == [message]


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        ('{"city": "Zürich", "n": [1]}', {"city": "Zürich", "n": [1]}),
        ({"city": "Bern"}, {"city": "Bern"}),
        ("null", {}),
        ("", {}),
        (None, {}),
        ('{"city": ', '{"city": '),
        ("[1]", "[1]"),
        (r'{"a\ud800": ["\ud83d\ude00", "\udc00x"]}', {"a\ufffd": ["😀", "\ufffdx"]}),
    ],
)
def test_arguments_of_tool_calls_are_objects(arguments: Any, seen: Any) -> None:
    [message] = prepare({"role": "assistant", "content": None, "tool_calls": [call(arguments)]})
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": seen}


def test_the_callers_messages_are_not_touched() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [call("{}")], "reasoning": "r"}
    before = repr(message)
    prepare(message)
    assert repr(message) == before


def test_reasoning_is_found_under_each_of_its_names() -> None:
    for name in ("reasoning_content", "thinking", "reasoning"):
        [message] = prepare({"role": "assistant", "content": "x", name: "because"})
        assert message["reasoning_content"] == message["thinking"] == "because"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        (["a", {"text": "b"}, {"type": "input_text", "text": "c"}, {"type": "refusal", "refusal": "d"}], "a\nb\nc\nd"),
    ],
)
def test_text_parts_are_joined_by_newlines(content: Any, text: str) -> None:
    assert content_text(content) == text
    assert prepare({"role": "user", "content": content})[0]["content"] == text


def test_a_template_for_parts_gets_parts() -> None:
    part = {"type": "text", "text": "a"}
    for content in ("a", [part], ["a"]):
        assert prepare({"role": "user", "content": content}, content_format="openai")[0]["content"] == [part]
    assert prepare({"role": "user", "content": None}, content_format="openai")[0]["content"] == []


@pytest.mark.parametrize(
    ("message", "param", "words"),
    [
        ({"role": "user", "content": ["a", {"type": "image_url"}]}, "messages[0].content[1]", "'image_url'.*text only"),
        ({"role": "user", "content": [{"type": ["text"]}]}, "messages[0].content[0]", "type list.*text only"),
        ({"role": "user", "content": [{"type": {}, "text": "a"}]}, "messages[0].content[0]", "type dict.*text only"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0]", "no text"),
        ({"role": "user", "content": [3]}, "messages[0].content[0]", "content part"),
        ({"role": "user", "content": 3}, "messages[0].content", "string or a list"),
        ({"role": 3, "content": "x"}, "messages[0].role", "must be a string"),
        ("hello", "messages[0]", "must be an object"),
    ],
)
@pytest.mark.parametrize("content_format", ["string", "openai"])
def test_what_is_no_text_is_refused_by_name(message: Any, param: str, words: str, content_format: str) -> None:
    with pytest.raises(TemplateError, match=words) as caught:
        prepare(message, content_format=content_format)
    assert caught.value.param == param


def test_a_conversation_has_at_least_one_message() -> None:
    with pytest.raises(TemplateError, match="at least one"):
        prepare()


def test_templates_hold_plain_values_only() -> None:
    class Name(str):
        def leak(self) -> str:
            return "secret"

    assert type(plain({"a": (Name("x"),)})["a"][0]) is str
    with pytest.raises(TemplateError, match="not bytes"):
        plain({"a": b"x"})
