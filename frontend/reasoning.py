"""Models that think before they answer: where the reasoning ends and the answer begins.

The reasoning stands between two tags at the very beginning of the answer. The first may already be the end of the
prompt, because many templates open it for the model.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    # The options are read before anything heavy is loaded, and they name a parser.
    from pagewire.frontend.tokenizer import Tokenizer

# An option's value of its own kind, such as ``tags:<think>,</think>``.
TAGS_PREFIX = "tags:"


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """The tags around the reasoning. ``implied`` says that the model may leave out the first one."""

    open: str
    close: str
    implied: bool = False

    def opened_by(self, prompt: str) -> bool:
        """Whether an answer to ``prompt`` begins within the reasoning.

        Only the very end of the prompt counts: a user may well talk about the tags.
        """
        end = prompt.rstrip()
        return end.endswith(self.open) or (self.implied and not end.endswith(self.close))


_NAMED: Mapping[str, ReasoningTags] = {
    "deepseek_r1": ReasoningTags("<think>", "</think>", implied=True),
    "qwen3": ReasoningTags("<think>", "</think>"),
}
REASONING_PARSERS = (*_NAMED, "auto", "none")


def reasoning_tags(value: str, template: str | None) -> ReasoningTags | None:
    """What ``--reasoning-parser`` stands for; None is that models do not reason, or that it does not show.

    ``auto`` takes the usual tags if the chat template speaks of them. Raises ``ValueError`` for anything unknown.
    """
    if value == "none":
        return None
    if value == "auto":
        tags = _NAMED["qwen3"]
        return tags if template and tags.close in template else None
    if value.startswith(TAGS_PREFIX):
        opening, comma, closing = value.removeprefix(TAGS_PREFIX).partition(",")
        if comma and opening.strip() and closing.strip():
            return ReasoningTags(opening.strip(), closing.strip())
    elif value in _NAMED:
        return _NAMED[value]
    raise ValueError(f"expected {', '.join(REASONING_PARSERS)} or {TAGS_PREFIX}OPEN,CLOSE, got {value!r}")


class ReasoningSplitter:
    """Splits one answer into its reasoning and the rest.

    Joined, the parts are the same however the text is cut. White space at the ends of the reasoning, and between it
    and the answer, belongs to neither. Without a closing tag everything is reasoning.
    """

    def __init__(self, tags: ReasoningTags, *, opened: bool) -> None:
        """``opened`` as ``ReasoningTags.opened_by`` tells it. ``closed`` becomes true after the closing tag."""
        self._tags = tags
        self._opened = opened
        # What comes next: a tag or else text, reasoning, space before the answer, the answer.
        self.state: Literal["start", "reasoning", "gap", "answer"] = "start"
        self._held = ""
        self._any_reasoning = False
        self.closed = False

    @property
    def reasons(self) -> bool:
        """Whether the text so far ends within the reasoning."""
        return self.state == "reasoning" or (self.state == "start" and self._opened)

    def feed(self, text: str) -> tuple[str, str]:
        """Take the next piece; return what it adds to the reasoning and to the answer."""
        if self.state == "answer":
            return "", text
        self._held += text
        reasoning = ""
        if self.state == "start":
            self._read_start()
        if self.state == "reasoning":
            reasoning = self._read_reasoning()
        if self.state == "gap" and self._held.strip():
            self.state = "answer"
            self._held = self._held.lstrip()
        if self.state != "answer":
            return reasoning, ""
        answer, self._held = self._held, ""
        return reasoning, answer

    def finish(self) -> tuple[str, str]:
        """Say that the answer is over; return what was held back."""
        held, self._held = self._held, ""
        if self.reasons:
            return held.rstrip() if self._any_reasoning else held.strip(), ""
        return "", held if self.state == "start" else ""

    def _read_start(self) -> None:
        """Decide whether there is an opening tag, once that is certain."""
        begun = self._held.lstrip()
        if begun.startswith(self._tags.open):
            self.state = "reasoning"
            self._held = begun.removeprefix(self._tags.open)
        elif not self._tags.open.startswith(begun):
            self.state = "reasoning" if self._opened else "answer"

    def _read_reasoning(self) -> str:
        """The reasoning up to the closing tag, or as far as it is certain not to be space or tag at its end."""
        text, tag, rest = self._held.partition(self._tags.close)
        if tag:
            self.state, self.closed = "gap", True
            end = len(text.rstrip())
            self._held = rest
        else:
            end = len(text[: len(text) - _overlap(text, self._tags.close)].rstrip())
            self._held = text[end:]
        reasoning = text[:end] if self._any_reasoning else text[:end].lstrip()
        self._any_reasoning = self._any_reasoning or bool(reasoning)
        return reasoning


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of ``text`` may be the beginning of ``tag``."""
    return next(size for size in range(min(len(tag) - 1, len(text)), -1, -1) if text.endswith(tag[:size]))


def count_reasoning(ids: Sequence[int], tags: ReasoningTags, tokenizer: "Tokenizer") -> int:
    """How many of the tokens of an answer come up to the end of the closing tag, which is among them."""
    close_id = tokenizer.token_id(tags.close)
    if close_id is not None and close_id in ids:
        return ids.index(close_id) + 1
    return bisect_left(range(len(ids)), True, key=lambda end: tags.close in tokenizer.decode(ids[:end]))


class ReasoningParser:
    """Splits one answer and counts the tokens of its reasoning, tags included."""

    def __init__(self, tags: ReasoningTags, tokenizer: "Tokenizer", *, opened: bool) -> None:
        """``opened`` as for ``ReasoningSplitter``."""
        self._tags = tags
        self._tokenizer = tokenizer
        self._splitter = ReasoningSplitter(tags, opened=opened)
        self._ids: list[int] = []
        self.tokens = 0

    def feed(self, text: str, ids: Sequence[int]) -> tuple[str, str]:
        """Take the next delta's text and token ids; return what it adds to the reasoning and to the answer."""
        if self._splitter.state == "answer":
            return "", text
        counted = self._splitter.closed
        split = self._splitter.feed(text)
        if not counted:
            self._count(ids)
        return split

    def finish(self) -> tuple[str, str]:
        """Say that the answer is over; return what was held back."""
        return self._splitter.finish()

    def _count(self, ids: Sequence[int]) -> None:
        self._ids += ids
        if self._splitter.closed:
            self.tokens = count_reasoning(self._ids, self._tags, self._tokenizer)
        else:
            self.tokens = len(self._ids) if self._splitter.reasons else 0
