"""Items: whatever a client sends is read or refused by name, and what was read can be sent back."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from pagewire.frontend.openai.errors import ApiError
from pagewire.frontend.responses.items import messages_of, read_input
from tests.json_values import json_like, outcome

KEYS = ["type", "role", "content", "text", "call_id", "name", "arguments", "output", "summary", "id", "refusal"]
WORDS = [
    "message",
    "user",
    "assistant",
    "input_text",
    "output_text",
    "function_call",
    "function_call_output",
    "reasoning",
]

ANYTHING = json_like(KEYS, WORDS)
ITEM = st.fixed_dictionaries({"type": st.sampled_from(WORDS)}, optional=dict.fromkeys(KEYS[1:], ANYTHING))


@given(st.lists(ANYTHING | ITEM, max_size=4))
@example([{"role": "assistant", "content": []}, {"type": "function_call_output", "call_id": "", "output": []}])
def test_items_are_read_or_refused_by_name(items: list[Any]) -> None:
    read = outcome(lambda: read_input(items))
    if isinstance(read, ApiError):
        assert read.status == 400
        assert read.param
        assert read.param.startswith("input")
    else:
        assert read_input(read) == read
        assert all(message["role"] for message in messages_of(read))


def call(number: int) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"}


def test_what_the_assistant_does_in_a_row_is_one_message() -> None:
    said = {"role": "assistant", "content": "Let me see."}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    result = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "3"}]}
    messages = messages_of(read_input([thought, said, call(1), call(2), result, call(3), said]))
    assert [message["role"] for message in messages] == ["assistant", "tool", "assistant", "assistant"]
    first, tool, second, third = messages
    assert (first["reasoning_content"], first["content"], len(first["tool_calls"])) == ("Hm.", "Let me see.", 2)
    assert tool["content"] == "3"
    assert (len(second["tool_calls"]), third["content"]) == (1, "Let me see.")


def test_ids_that_a_client_sends_back_are_kept() -> None:
    [item] = read_input([{**call(1), "id": "fc_1"}])
    assert item["id"] == "fc_1"


def test_thoughts_in_a_row_are_one_text() -> None:
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}
    said = {"role": "assistant", "content": "So."}
    messages = messages_of(read_input([thought, thought, said, thought]))
    assert [message["reasoning_content"] for message in messages] == ["Hm.Hm.", "Hm."]
