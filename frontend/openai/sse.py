"""Server-sent events: their bytes, built so that a streamed token costs microseconds."""

from typing import Any

import msgspec

from pagewire.frontend.openai.errors import ApiError

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

_encoder = msgspec.json.Encoder()
encode = _encoder.encode


def error_event(error: ApiError) -> bytes:
    """The event that ends a stream which failed after its start."""
    return b"data: " + error.body() + b"\n\n"


def typed_event(fields: dict[str, Any]) -> bytes:
    """An event that is named by its ``type``, as those APIs have that send several kinds of events."""
    return b"event: %b\ndata: %b\n\n" % (fields["type"].encode(), encode(fields))


class ChunkFrame:
    """What is the same around the choice of every chunk of one response, encoded once.

    A chunk is ``frame.head`` + a choice as JSON + ``frame.tail``.
    """

    def __init__(self, fields: dict[str, Any], *, null_usage: bool):
        """``fields`` are id, object, created and model; ``null_usage`` announces a usage chunk to come."""
        # Everything but the closing brace of the object, then the list of choices by hand.
        self.head = b"data: " + encode(fields)[:-1] + b',"choices":['
        self.tail = b'],"usage":null}\n\n' if null_usage else b"]}\n\n"

    def with_usage(self, choice: bytes, usage: dict[str, Any]) -> bytes:
        """A chunk that carries usage; ``choice`` may be empty."""
        return self.with_fields(choice, {"usage": usage})

    def with_fields(self, choice: bytes, fields: dict[str, Any]) -> bytes:
        """A chunk with more fields, at least one, than all the others have."""
        return self.head + choice + b"]," + encode(fields)[1:] + b"\n\n"
