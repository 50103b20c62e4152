"""From the deltas of an answer to reasoning, text and tool calls."""

from collections.abc import Sequence

from pagewire.frontend.reasoning import ReasoningParser
from pagewire.frontend.tools.events import Event, Reasoning, Text
from pagewire.frontend.tools.parser import ToolParser


class AnswerParser:
    """Takes one answer apart. Reasoning comes first; calls are looked for in what follows it."""

    def __init__(self, reasoning: ReasoningParser | None, tools: ToolParser | None) -> None:
        """Either part is None if it is not wanted."""
        self._reasoning = reasoning
        self._tools = tools

    def feed(self, text: str, ids: Sequence[int]) -> list[Event]:
        """Take the next delta's text and token ids."""
        if self._reasoning is None:
            return self._answer(text)
        thought, answer = self._reasoning.feed(text, ids)
        return [*_reasoning(thought), *self._answer(answer)]

    def finish(self) -> list[Event]:
        """Say that the answer is over."""
        thought, answer = self._reasoning.finish() if self._reasoning else ("", "")
        events = [*_reasoning(thought), *self._answer(answer)]
        return [*events, *self._tools.finish()] if self._tools else events

    @property
    def reasoning_tokens(self) -> int:
        """How many tokens were reasoning, its tags included."""
        return self._reasoning.tokens if self._reasoning else 0

    @property
    def calls(self) -> bool:
        """Whether the answer calls tools, and says all of it: a stop string, say, may have cut the last call."""
        return self._tools is not None and self._tools.num_calls > 0 and not self._tools.is_inside_call

    @property
    def is_inside_call(self) -> bool:
        """Whether the answer has begun a call that is not complete."""
        return self._tools is not None and self._tools.is_inside_call

    @property
    def num_complete_calls(self) -> int:
        """How many of them have been read to their end."""
        return self._tools.num_complete_calls if self._tools else 0

    def _answer(self, text: str) -> list[Event]:
        if self._tools is not None:
            return self._tools.feed(text) if text else []
        return [Text(text)] if text else []


def _reasoning(text: str) -> list[Event]:
    return [Reasoning(text)] if text else []
