"""Reasoning is told from the answer, and its tokens are counted."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagewire.frontend.answers import AnswerParser
from pagewire.frontend.reasoning import ReasoningParser, ReasoningSplitter, ReasoningTags, reasoning_tags
from pagewire.frontend.tokenizer import Tokenizer
from pagewire.frontend.tools.events import CallArguments, CallStart, Reasoning
from pagewire.frontend.tools.formats import FORMATS
from pagewire.frontend.tools.parser import ToolParser
from tests.toy_tokenizer import tokenizer_json

THINK = ReasoningTags("<think>", "</think>")
CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """One token per byte, so that tags are many tokens."""
    return Tokenizer(tokenizer_json())


def split(pieces: Sequence[str], *, opened: bool = False) -> tuple[str, str]:
    """The joined reasoning and the joined answer."""
    splitter = ReasoningSplitter(THINK, opened=opened)
    parts = [*map(splitter.feed, pieces), splitter.finish()]
    return "".join(part[0] for part in parts), "".join(part[1] for part in parts)


CASES = [
    ("<think>\nHm. Well...\n</think>\n\nYes.\n", False, "Hm. Well...", "Yes.\n"),
    ("Hm.</think>Yes.", True, "Hm.", "Yes."),
    ("<think>Hm.</think>Yes.", True, "Hm.", "Yes."),
    ("<think></think> Yes.", False, "", "Yes."),
    (" Yes, <think> is a tag.", False, "", " Yes, <think> is a tag."),
    ("<think>a </thin b</think>c</think>", False, "a </thin b", "c</think>"),
    ("<think>a <think> b</think>c", False, "a <think> b", "c"),
    ("<think>Cut in the mid", False, "Cut in the mid", ""),
    ("<think>Cut in the tag </thi", False, "Cut in the tag </thi", ""),
    ("<thi", False, "", "<thi"),
    ("<thi", True, "<thi", ""),
    ("", True, "", ""),
    ("<think>x</think>\n", False, "x", ""),
]


@pytest.mark.parametrize(("written", "opened", "reasoning", "answer"), CASES)
def test_reasoning_is_told_from_the_answer_wherever_it_is_cut(
    written: str, opened: bool, reasoning: str, answer: str
) -> None:
    assert split(written, opened=opened) == (reasoning, answer)
    for cut in range(len(written) + 1):
        assert split([written[:cut], written[cut:]], opened=opened) == (reasoning, answer)


@given(st.lists(st.sampled_from(("<think>", "</think>", "<", "/think>", " ", "\n", "a")), max_size=12), st.booleans())
def test_any_pieces_give_the_same(parts: list[str], opened: bool) -> None:
    assert split(parts, opened=opened) == split(["".join(parts)], opened=opened) == split("".join(parts), opened=opened)


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("user\nHi\nassistant\n<think>\n", True),
        ("user\nHi\nassistant\n<think>\n\n</think>\n\n", False),
        ("user\nWhat is <think>?\nassistant\n", False),
    ],
)
def test_the_end_of_the_prompt_tells_whether_reasoning_is_open(prompt: str, opened: bool) -> None:
    assert THINK.opened_by(prompt) is opened


def test_a_model_that_leaves_out_the_opening_tag_reasons_unless_the_prompt_has_closed_it() -> None:
    tags = reasoning_tags("deepseek_r1", None)
    assert tags is not None
    assert tags.opened_by("user\nHi\nassistant\n")
    assert not tags.opened_by("assistant\n<think>\n</think>\n")


@pytest.mark.parametrize(
    ("value", "template", "tags"),
    [
        ("none", "<think></think>", None),
        ("qwen3", None, THINK),
        ("auto", "{{ '<think>\n\n</think>' }}", THINK),
        ("auto", "{{ messages }}", None),
        ("auto", None, None),
        ("tags:[THINK], [/THINK]", None, ReasoningTags("[THINK]", "[/THINK]")),
    ],
)
def test_tags_are_chosen_by_name_or_given(value: str, template: str | None, tags: ReasoningTags | None) -> None:
    assert reasoning_tags(value, template) == tags


@pytest.mark.parametrize("value", ["gpt", "tags:", "tags:<a>", "tags:,</a>"])
def test_other_values_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="deepseek_r1"):
        reasoning_tags(value, None)


@pytest.mark.parametrize(("written", "opened", "reasoning", "answer"), CASES)
def test_tokens_of_the_reasoning_are_counted_up_to_the_end_of_its_tag(
    tokenizer: Tokenizer, written: str, opened: bool, reasoning: str, answer: str
) -> None:
    end = written.find("</think>")
    reasons = opened or written.startswith("<think>")
    expected = 0 if not reasons else len(written) if end < 0 else end + len("</think>")
    for size in (1, 3, 100):
        parser = ReasoningParser(THINK, tokenizer, opened=opened)
        for piece in _pieces(written, size):
            parser.feed(piece, piece.encode())
        parser.finish()
        assert parser.tokens == expected


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def test_calls_are_looked_for_after_the_reasoning_only(tokenizer: Tokenizer) -> None:
    tools = ToolParser(FORMATS["hermes"], ["now"])
    parser = AnswerParser(ReasoningParser(THINK, tokenizer, opened=False), tools)

    events = [*parser.feed(f"<think>{CALL}", b""), *parser.feed(f"</think>{CALL}", b""), *parser.finish()]

    assert isinstance(events[1], CallStart)
    assert events == [Reasoning(CALL), CallStart(0, events[1].id, "now"), CallArguments(0, "{}")]
