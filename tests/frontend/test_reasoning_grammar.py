"""A grammar behind reasoning leaves the reasoning free and binds the answer."""

import pytest

from pagewire.frontend.reasoning import ReasoningTags
from pagewire.frontend.reasoning_grammar import after_reasoning
from tests.toy_tokenizer import IM_END, IM_START, tokenizer_json

llguidance = pytest.importorskip("llguidance")

THINK = ReasoningTags("<think>", "</think>")
LARK = 'start: "yes" | "no"'
SCHEMA = '{"grammars": [{"json_schema": {"const": "yes"}}]}'


def accepts(grammar: str, written: bytes | list[int]) -> bool:
    """Whether the tokens are a whole answer."""
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer(tokenizer_json(), eos_token=IM_END), grammar)
    assert not matcher.get_error()
    ids = list(written)
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("source", "opened", "written", "accepted"),
    [
        (LARK, True, b"<think>a </thi b\n</think>\n\nyes", True),
        (LARK, True, b"a</think>no", True),
        (LARK, True, b"yes", False),
        (LARK, False, b"<think>a</think>yes", True),
        (LARK, False, b"yes", True),
        (LARK, False, b"\nyes", False),
        (LARK, False, b"a</think>yes", False),
        (LARK, False, b"<think>a</think>maybe", False),
        (LARK, False, b"<think>a</think>b</think>yes", False),
        (SCHEMA, True, b'a</think>\n"yes"', True),
        (SCHEMA, True, b"a</think>\nyes", False),
    ],
)
def test_only_what_follows_the_reasoning_is_bound(source: str, opened: bool, written: bytes, accepted: bool) -> None:
    assert accepts(after_reasoning(source, THINK, {}, opened=opened), written) is accepted


def test_a_tag_that_is_a_special_token_is_only_that_token() -> None:
    grammar = after_reasoning(LARK, THINK, {"</think>": IM_START}, opened=True)
    assert accepts(grammar, [*b"a</think>b", IM_START, *b"yes"])
    assert not accepts(grammar, b"a</think>yes")
