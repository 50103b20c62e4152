"""Output items while they are generated: what each stage of an item says in a stream, and the item in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagewire.frontend.responses.ids import new_id

Json = dict[str, Any]
# The type of an event, and its fields.
Events = list[tuple[str, Json]]


@dataclass(frozen=True, slots=True)
class TextKind:
    """An item whose content is one part of text: what they are called, and what the events of the text are."""

    id_kind: str
    item: Mapping[str, Any]
    part: Mapping[str, Any]
    event: str
    has_logprobs: bool


MESSAGE = TextKind(
    "msg",
    {"type": "message", "role": "assistant"},
    {"type": "output_text", "annotations": []},
    "response.output_text",
    has_logprobs=True,
)
REASONING = TextKind(
    "rs",
    {"type": "reasoning", "summary": []},
    {"type": "reasoning_text"},
    "response.reasoning_text",
    has_logprobs=False,
)


class GrowingText:
    """What the assistant says or thinks."""

    def __init__(self, index: int, kind: TextKind):
        """``index`` is the item's place in the output."""
        self.kind = kind
        self._id = new_id(kind.id_kind)
        self._index = index
        self._place = {"item_id": self._id, "output_index": index, "content_index": 0}
        self._pieces: list[str] = []
        self._logprobs: list[Json] = []

    def begin(self) -> Events:
        """The item, then its only part."""
        return [
            ("response.output_item.added", {"output_index": self._index, "item": self._item("in_progress", [])}),
            ("response.content_part.added", {**self._place, "part": self._part()}),
        ]

    def add(self, text: str, logprobs: Sequence[Json] = ()) -> Events:
        """More text, with the log-probabilities of its tokens if they are wanted."""
        self._pieces.append(text)
        self._logprobs += logprobs
        return [(f"{self.kind.event}.delta", {**self._place, "delta": text, **self._with(logprobs)})]

    def end(self, status: str) -> Events:
        """The text, the part and the item."""
        part = self._part()
        return [
            (f"{self.kind.event}.done", {**self._place, "text": part["text"], **self._with(self._logprobs)}),
            ("response.content_part.done", {**self._place, "part": part}),
            ("response.output_item.done", {"output_index": self._index, "item": self._item(status, [part])}),
        ]

    def final(self, status: str) -> Json:
        """The item so far."""
        return self._item(status, [self._part()])

    def _item(self, status: str, content: list[Json]) -> Json:
        return {"id": self._id, **self.kind.item, "status": status, "content": content}

    def _part(self) -> Json:
        return {**self.kind.part, "text": "".join(self._pieces), **self._with(self._logprobs)}

    def _with(self, logprobs: Sequence[Json]) -> Json:
        return {"logprobs": list(logprobs)} if self.kind.has_logprobs else {}


class GrowingCall:
    """A call of a function."""

    def __init__(self, index: int, call_id: str, name: str):
        """``index`` is the item's place in the output; ``call_id`` is what its result will refer to."""
        self._id = new_id("fc")
        self._index = index
        self._place = {"item_id": self._id, "output_index": index}
        self._call_id = call_id
        self._name = name
        self._pieces: list[str] = []

    def begin(self) -> Events:
        """The call, without arguments yet."""
        return [("response.output_item.added", {"output_index": self._index, "item": self.final("in_progress")})]

    def add(self, text: str) -> Events:
        """More of the JSON text of its arguments."""
        self._pieces.append(text)
        return [("response.function_call_arguments.delta", {**self._place, "delta": text})]

    def end(self, status: str) -> Events:
        """The arguments and the call."""
        call = self.final(status)
        done = {**self._place, "name": self._name, "arguments": call["arguments"]}
        return [
            ("response.function_call_arguments.done", done),
            ("response.output_item.done", {"output_index": self._index, "item": call}),
        ]

    def final(self, status: str) -> Json:
        """The call so far."""
        return {
            "id": self._id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": "".join(self._pieces),
        }
