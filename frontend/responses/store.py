"""Responses that clients may come back to: in memory, the oldest forgotten first."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

Item = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response as JSON, and the items it was made from; ``owner`` is the digest of the key that asked for it."""

    owner: bytes | None
    document: bytes
    input_items: bytes

    @property
    def size(self) -> int:
        """Bytes of JSON."""
        return len(self.document) + len(self.input_items)

    def inputs(self) -> list[Item]:
        """The items that the response was made from, those of earlier turns included, oldest first."""
        items: list[Item] = _decode(self.input_items)
        return items

    def conversation(self) -> list[Item]:
        """The items that the next turn continues: those before the response, and its output."""
        output: list[Item] = _decode(self.document)["output"]
        return [*self.inputs(), *output]


class ResponseStore:
    """Keeps responses by id, at most so many and so many bytes of them.

    Each stands for itself: its whole conversation is in it, so forgetting one never breaks another. Being used makes
    a response young again.
    """

    def __init__(self, max_responses: int, max_bytes: int):
        """With no room for any, nothing is ever found."""
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._responses: OrderedDict[str, StoredResponse] = OrderedDict()
        self.num_bytes = 0

    def __len__(self) -> int:
        """How many responses are kept."""
        return len(self._responses)

    def put(self, owner: bytes | None, document: dict[str, Any], input_items: Sequence[Item]) -> None:
        """Keep a finished response under its id, unless it is larger than the store."""
        stored = StoredResponse(owner, _encode(document), _encode(input_items))
        if stored.size > self._max_bytes or not self._max_responses:
            return
        self._responses[document["id"]] = stored
        self.num_bytes += stored.size
        while self.num_bytes > self._max_bytes or len(self._responses) > self._max_responses:
            _, oldest = self._responses.popitem(last=False)
            self.num_bytes -= oldest.size

    def find(self, owner: bytes | None, response_id: str) -> StoredResponse | None:
        """The response with this id, if this owner stored it and it is still kept."""
        stored = self._responses.get(response_id)
        if stored is None or stored.owner != owner:
            return None
        self._responses.move_to_end(response_id)
        return stored

    def delete(self, owner: bytes | None, response_id: str) -> bool:
        """Forget a response; whether there was one."""
        stored = self.find(owner, response_id)
        if stored is None:
            return False
        del self._responses[response_id]
        self.num_bytes -= stored.size
        return True
