import asyncio
import logging
import threading
import time
from datetime import datetime
from typing import Any

import pytest

from pagewire.frontend import template as template_module
from pagewire.frontend.template import (
    RESERVED_TEMPLATE_KWARGS,
    ChatTemplate,
    TemplateError,
    load_chat_template,
)

# As SmolLM2 has it: every message is closed, a system message is supplied if there is none.
CLOSING = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}<system>be nice</>{% endif %}"
    "<{{ m['role'] }}>{{ m['content'] }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
TRIMMING = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}"
PARTS = "{% for m in messages %}<{% for part in m.content %}{{ part.text }};{% endfor %}>{% endfor %}"

QUESTION = {"role": "user", "content": "Hello!"}
ANSWER = {"role": "assistant", "content": "OK! \n"}


def render(text: str, *messages: dict[str, Any], generate: bool = True, **options: Any) -> str:
    return ChatTemplate(text, "test", {"bos_token": "<s>"}).render(messages, add_generation_prompt=generate, **options)


def test_the_generation_prompt_is_the_templates_business() -> None:
    assert render(CLOSING, QUESTION) == "<system>be nice</><user>Hello!</><assistant>"
    assert render(CLOSING, QUESTION, generate=False) == "<system>be nice</><user>Hello!</>"


def test_add_generation_prompt_is_always_defined() -> None:
    text = "{% if add_generation_prompt is defined %}{{ add_generation_prompt }}{% endif %}"
    assert render(text, QUESTION, generate=False) == "False"


@pytest.mark.parametrize("role", ["user", "assistant", "system", "meta-current_date", "narrator", ""])
@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("proceed", [True, False])
def test_roles_of_any_name_are_rendered_and_continued(role: str, generate: bool, proceed: bool) -> None:
    last = {"role": role, "content": "and so"}
    if generate and proceed:
        with pytest.raises(TemplateError, match="exclude each other"):
            render(CLOSING, QUESTION, last, generate=True, continue_final_message=True)
        return
    rendered = render(CLOSING, QUESTION, last, generate=generate, continue_final_message=proceed)
    end = "" if proceed else "</><assistant>" if generate else "</>"
    assert rendered == f"<system>be nice</><user>Hello!</><{role}>and so{end}"


@pytest.mark.parametrize(
    ("text", "end"),
    [(CLOSING, "<assistant>OK! \n"), (TRIMMING, "<assistant>OK!"), (PARTS, "<OK! \n")],
    ids=["kept", "trimmed", "parts"],
)
def test_a_continued_message_ends_as_the_template_leaves_it(text: str, end: str) -> None:
    assert render(text, QUESTION, ANSWER, generate=False, continue_final_message=True).endswith(end)


def test_a_message_that_is_shown_twice_is_left_open_where_it_is_shown_last() -> None:
    text = "[{{ messages[-1].content }}|{{ messages[-1].content | trim }}]" + CLOSING
    rendered = render(text, ANSWER, generate=False, continue_final_message=True)
    assert rendered == "[OK! \n|OK! \n]<system>be nice</><assistant>OK! \n"


def test_only_the_last_text_part_is_left_open() -> None:
    parts = {"role": "assistant", "content": ["one", "two"]}
    assert render(PARTS, parts, generate=False, continue_final_message=True) == "<one;two"


def test_a_message_that_looks_like_the_mark_is_continued_all_the_same() -> None:
    last = {"role": "assistant", "content": "END_OF_OPEN_MESSAGE of END_OF_OPEN_MESSAGE_ "}
    rendered = render(TRIMMING + "{{ messages[0].content }}", last, generate=False, continue_final_message=True)
    assert rendered.startswith("<assistant>END_OF_OPEN_MESSAGE of END_OF_OPEN_MESSAGE_")


def test_no_message_makes_finding_a_mark_long_work() -> None:
    last = {"role": "assistant", "content": "END_OF_OPEN_MESSAGE" + "_" * 200_000}
    # It took quadratic time once.
    begun = time.process_time()
    render(TRIMMING, last, generate=False, continue_final_message=True)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("text", "last"),
    [("fixed", ANSWER), ("{{ messages[-1].content | lower }}", ANSWER), (PARTS, {"role": "assistant", "content": []})],
)
def test_a_message_that_the_template_does_not_show_cannot_be_continued(text: str, last: dict[str, Any]) -> None:
    with pytest.raises(TemplateError, match="continue_final_message"):
        render(text, QUESTION, last, generate=False, continue_final_message=True)


def test_errors_carry_the_templates_own_words() -> None:
    with pytest.raises(TemplateError) as caught:
        render("{{ raise_exception('roles must alternate, é') }}", QUESTION)
    assert str(caught.value) == "roles must alternate, é"
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "text",
    ["{{ messages.x.y }}", "{{ 1 / 0 }}", "{{ 'a' + 1 }}", "{{ 'x' | tojson(1, 2, 3, 4, 5) }}", "{{ none | length }}"],
)
def test_every_error_of_a_template_tells_the_line(text: str) -> None:
    with pytest.raises(TemplateError, match=r"\(chat template, line 3\)"):
        render("\n\n" + text, QUESTION)


@pytest.mark.parametrize("text", ["\n{{ x", "\n{% if %}", "\n{{ x | no_such_filter }}", "\n{% endfor %}"])
def test_a_syntax_error_is_found_when_compiling_and_tells_the_line(text: str) -> None:
    with pytest.raises(TemplateError, match="chat template, line 2:"):
        ChatTemplate(text, "test")


def test_a_deeply_nested_conversation_is_an_error_of_the_request() -> None:
    value: Any = "x"
    for _ in range(5000):
        value = [value]
    with pytest.raises(TemplateError, match="nested too deeply"):
        render(CLOSING, {**QUESTION, "extra": value})


def test_template_kwargs_are_variables_and_win_over_special_tokens() -> None:
    text = "{{ bos_token }}{{ enable_thinking }}"
    assert render(text, QUESTION, template_kwargs={"enable_thinking": False}) == "<s>False"
    assert render(text, QUESTION, template_kwargs={"bos_token": "B"}) == "B"
    assert ChatTemplate(text, "test", {"bos_token": "<s>"}).request_variables == {"enable_thinking"}


@pytest.mark.parametrize("name", sorted(RESERVED_TEMPLATE_KWARGS))
def test_reserved_template_kwargs_are_refused(name: str) -> None:
    with pytest.raises(TemplateError, match=name) as caught:
        render(CLOSING, QUESTION, template_kwargs={name: 1})
    assert caught.value.param == "chat_template_kwargs"


def test_tools_and_documents_reach_the_template() -> None:
    text = "{{ tools | tojson }}{{ documents | tojson }}"
    assert render(text, QUESTION, tools=[{"a": 1}], documents=[{"b": 2}]) == '[{"a": 1}][{"b": 2}]'
    assert render(text, QUESTION, tools=[]) == "nullnull"


def test_the_models_tool_template_is_used_when_there_are_tools() -> None:
    template = load_chat_template(None, {"default": "plain", "tool_use": "tools"}, {})
    assert template is not None
    assert template.render([QUESTION], add_generation_prompt=True) == "plain"
    assert template.render([QUESTION], add_generation_prompt=True, tools=[{"a": 1}]) == "tools"


def test_echoed_parts_are_joined_as_the_template_joins_them() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert ChatTemplate(CLOSING, "test").content_text(content) == "a\nb"
    assert ChatTemplate(PARTS, "test").content_text(content) == "a;b"
    assert ChatTemplate(PARTS, "test").content_text("a") == "a"


@pytest.mark.parametrize(
    ("value", "models", "level", "words"),
    [
        ("{{ 1 }}", {"default": CLOSING}, logging.INFO, "supplied chat template"),
        (None, {"default": CLOSING}, logging.INFO, "model's chat template"),
        (None, {"rag": CLOSING}, logging.WARNING, "no chat template provided"),
    ],
)
def test_the_log_says_which_template_is_used(
    value: str | None, models: dict[str, str], level: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    template = load_chat_template(value, models, {})
    assert [record.levelno for record in caplog.records if words in record.message] == [level]
    if template is None:
        assert len(caplog.records) == 1
    else:
        assert template.text in caplog.records[-1].message
        assert caplog.records[-1].levelno == logging.DEBUG


async def test_a_short_conversation_is_rendered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "_INLINE_SECONDS", 60)
    template = ChatTemplate("{{ strftime_now('') }}x", "test", now=(seen := Threads()).now)
    assert await template.render_async([QUESTION], add_generation_prompt=True) == "x"
    assert seen.threads == [threading.main_thread()]


@pytest.mark.parametrize("messages", [[QUESTION] * 100, [{**QUESTION, "content": "x" * 100_000}]], ids=["many", "long"])
async def test_a_long_conversation_is_rendered_in_a_thread(messages: list[dict[str, Any]]) -> None:
    template = ChatTemplate("{{ strftime_now('') }}x", "test", now=(seen := Threads()).now)
    assert await template.render_async(messages, add_generation_prompt=True) == "x"
    assert threading.main_thread() not in seen.threads


@pytest.mark.parametrize(
    "others",
    [
        {"tools": [{"description": "x" * 100_000}]},
        {"documents": [{"text": "x"}] * 30_000},
        {"template_kwargs": {"x": [[]] * 60_000}},
    ],
    ids=["tools", "documents", "kwargs"],
)
async def test_so_is_a_short_one_with_much_beside_it(others: dict[str, Any]) -> None:
    template = ChatTemplate("{{ strftime_now('') }}x", "test", now=(seen := Threads()).now)
    await template.render_async([QUESTION], add_generation_prompt=True, **others)
    assert threading.main_thread() not in seen.threads


async def test_a_slow_template_is_rendered_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "_INLINE_SECONDS", -1)
    template = ChatTemplate("{% for i in range(3) %}{{ i }}{% endfor %}", "test")
    assert await template.render_async([QUESTION], add_generation_prompt=True) == "012"


async def test_one_template_serves_many_requests_at_once() -> None:
    template = ChatTemplate(CLOSING, "test")

    def render_one(number: int) -> Any:
        messages = [{"role": "user", "content": f"{number} " * 20_000}]
        return template.render_async(messages, add_generation_prompt=False)

    texts = await asyncio.gather(*map(render_one, range(20)))
    assert [text.count(f"{number} ") for number, text in enumerate(texts)] == [20_000] * 20


class Threads:
    """A clock that remembers which threads read it."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def now(self) -> datetime:
        self.threads.append(threading.current_thread())
        return datetime(2024, 1, 1)
