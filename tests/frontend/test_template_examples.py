"""What the shipped templates render, word for word."""

from typing import Any

import pytest

from pagewire.frontend.template import ChatTemplate, TemplateError, load_chat_template

CHAT = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi there!"},
    {"role": "user", "content": "What is the capital of"},
]
STARTED = {"role": "assistant", "content": "The capital of"}
CHATML_HISTORY = (
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi there!<|im_end|>\n"
    "<|im_start|>user\nWhat is the capital of"
)
MANY = [
    {"role": "meta-current_date", "content": "2023-10-20"},
    {"role": "system", "content": " Be nice. "},
    {"role": "meta-task_name", "content": "general"},
    {"role": "user", "content": "Summarize this."},
    {"role": "user_context", "content": "A long text."},
]
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def example(name: str) -> ChatTemplate:
    template = load_chat_template(f"name:{name}", {}, {"bos_token": "<s>"})
    assert template is not None
    return template


@pytest.mark.parametrize(
    ("messages", "generate", "text"),
    [
        (CHAT, True, CHATML_HISTORY + "<|im_end|>\n<|im_start|>assistant\n"),
        (CHAT, False, CHATML_HISTORY),
        ([*CHAT, STARTED], True, CHATML_HISTORY + "<|im_end|>\n<|im_start|>assistant\nThe capital of<|im_end|>\n"),
        ([*CHAT, STARTED], False, CHATML_HISTORY + "<|im_end|>\n<|im_start|>assistant\nThe capital of"),
    ],
)
def test_chatml(messages: list[dict[str, str]], generate: bool, text: str) -> None:
    assert example("chatml").render(messages, add_generation_prompt=generate) == text


ALPACA = "Be nice.\n\n### Instruction:\nSummarize this.\n\n### Input:\nA long text."


@pytest.mark.parametrize(
    ("more", "generate", "text"),
    [
        ([], True, ALPACA + "\n\n### Response:\n"),
        ([], False, ALPACA),
        ([{"role": "assistant", "content": "It says"}], True, ALPACA + "\n\n### Response:\nIt says\n\n"),
        ([{"role": "assistant", "content": "It says"}], False, ALPACA + "\n\n### Response:\nIt says"),
    ],
)
def test_alpaca(more: list[dict[str, str]], generate: bool, text: str) -> None:
    messages = [message for message in MANY if not message["role"].startswith("meta-")] + more
    assert example("alpaca").render(messages, add_generation_prompt=generate) == text


def test_alpaca_refuses_roles_it_has_no_section_for() -> None:
    with pytest.raises(TemplateError, match="no role meta-current_date"):
        example("alpaca").render(MANY, add_generation_prompt=True)


BOT = (
    "<s><#meta#>\n- Current date: 2023-10-20\n- Task name: general\n<#system#>\nBe nice.\n"
    "<#chat#>\n<#user#>\nSummarize this.\n<#user_context#>\nA long text."
)


@pytest.mark.parametrize(
    ("more", "generate", "text"),
    [
        ([], True, BOT + "\n<#bot#>\n"),
        ([], False, BOT),
        ([{"role": "assistant", "content": "It says"}], True, BOT + "\n<#bot#>\nIt says\n"),
        ([{"role": "assistant", "content": "It says"}], False, BOT + "\n<#bot#>\nIt says"),
    ],
)
def test_many_roles(more: list[dict[str, str]], generate: bool, text: str) -> None:
    assert example("many_roles").render(MANY + more, add_generation_prompt=generate) == text


def test_last_content() -> None:
    assert example("last_content").render(CHAT, add_generation_prompt=True) == "What is the capital of"


def call(city: str) -> dict[str, Any]:
    return {"id": city, "type": "function", "function": {"name": "weather", "arguments": f'{{"city": "{city}"}}'}}


def test_tool_use() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call("Zürich"), call("Bern")]},
        {"role": "tool", "content": "sun", "tool_call_id": "Zürich"},
        {"role": "tool", "content": "rain", "tool_call_id": "Bern"},
    ]
    assert example("tool_use").render(messages, add_generation_prompt=True, tools=[WEATHER]) == (
        "<|im_start|>system\nBe brief.\n\nYou can call functions. Their signatures, one a line:\n<tools>\n"
        '{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}\n</tools>\n'
        "To call one, answer with its name and arguments as JSON:\n"
        '<tool_call>\n{"name": "NAME", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\nWeather?<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nsun\n</tool_response>\n<tool_response>\nrain\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_tool_use_without_tools_is_chatml() -> None:
    for generate in (True, False):
        texts = {example(name).render(CHAT, add_generation_prompt=generate) for name in ("chatml", "tool_use")}
        assert len(texts) == 1
