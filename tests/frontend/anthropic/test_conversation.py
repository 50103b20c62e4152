"""Content blocks: whatever a client sends is read or refused by name."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pagewire.frontend.anthropic.conversation import ConversationReader
from pagewire.frontend.anthropic.tools import anthropic_tools
from pagewire.frontend.openai.errors import ApiError
from tests.json_values import json_like, outcome

KEYS = ["type", "role", "content", "text", "id", "name", "input", "tool_use_id", "thinking", "cache_control"]
WORDS = ["user", "assistant", "system", "text", "tool_use", "tool_result", "thinking", "auto", "any", "tool"]
ANYTHING = json_like(KEYS, WORDS)
BLOCK = st.fixed_dictionaries({"type": st.sampled_from(WORDS)}, optional=dict.fromkeys(KEYS[1:], ANYTHING))
MESSAGE = st.fixed_dictionaries({"role": st.sampled_from(WORDS), "content": st.lists(BLOCK, max_size=3) | ANYTHING})


@given(st.none() | st.text(max_size=3) | st.lists(BLOCK, max_size=2), st.lists(MESSAGE | ANYTHING, max_size=4))
def test_messages_are_read_or_refused_by_name(system: Any, messages: list[Any]) -> None:
    read = outcome(lambda: ConversationReader().read(system, messages))
    if isinstance(read, ApiError):
        assert read.status == 400
        assert (read.param or "").partition(".")[0] in ("system", "messages")
        assert read.param in read.message
    else:
        assert all(message["role"] in ("system", "user", "assistant", "tool") for message in read)


@given(st.lists(ANYTHING, max_size=3), st.none() | st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=3))
def test_tools_are_read_or_refused_by_name(tools: list[Any], choice: Any) -> None:
    use = outcome(lambda: anthropic_tools(tools, choice))
    if isinstance(use, ApiError):
        assert use.status == 400
        assert use.param
        assert use.param.startswith("tool")


def test_messages_of_one_role_in_a_row_are_one_turn_and_the_clients_are_left_alone() -> None:
    block = {"type": "text", "text": "b"}
    given = [{"role": "user", "content": said} for said in ("a", [block, block], "c")]
    before = copy.deepcopy(given)
    [turn] = ConversationReader().read(None, given)
    assert [part["text"] for part in turn["content"]] == ["a", "b", "b", "c"]
    assert given == before
