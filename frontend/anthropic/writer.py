"""A message as it grows: Anthropic's events, and the message itself."""

from collections.abc import Callable, Sequence
from typing import Any

from pagewire.frontend.anthropic.errors import error_body
from pagewire.frontend.openai.errors import ApiError
from pagewire.frontend.openai.sse import typed_event
from pagewire.frontend.openai.turn import Turn
from pagewire.frontend.surrogates import read_json
from pagewire.frontend.tools.events import CallArguments, CallStart, Event, Reasoning, Text
from pagewire.protocol.messages import Finish, Logprob

Json = dict[str, Any]


class MessageWriter:
    """Writes one message. Content blocks follow one another, each complete before the next begins."""

    keep_alive = typed_event({"type": "ping"})

    def __init__(self, message_id: str, model: str, turn: Turn, request_id: str, *, room_is_limit: bool):
        """``room_is_limit`` says that fewer tokens than the client allows fit into the context."""
        self._turn = turn
        self._request_id = request_id
        self._length_reason = "model_context_window_exceeded" if room_is_limit else "max_tokens"
        self._content: list[Json] = []
        # The text of the block that is open: text, thoughts, or the JSON of a call's input.
        self._pieces: list[str] = []
        self._open = False
        self._message: Json = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": self._content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage_json(),
        }

    def begin(self) -> bytes:
        """The empty message."""
        return typed_event({"type": "message_start", "message": self._message}) + self.keep_alive

    def add(self, events: Sequence[Event], logprobs: Sequence[Logprob]) -> bytes:
        """More content; there are no log-probabilities in this API."""
        written: list[bytes] = []
        for event in events:
            match event:
                case Text(text):
                    written += self._ensure("text", lambda: {"type": "text", "text": ""})
                    written.append(self._delta(text, {"type": "text_delta", "text": text}))
                case Reasoning(text):
                    written += self._ensure("thinking", lambda: {"type": "thinking", "thinking": "", "signature": ""})
                    written.append(self._delta(text, {"type": "thinking_delta", "thinking": text}))
                case CallStart(_, call_id, name):
                    written += self._begin_block({"type": "tool_use", "id": call_id, "name": name, "input": {}})
                case CallArguments(_, text):
                    written.append(self._delta(text, {"type": "input_json_delta", "partial_json": text}))
        return b"".join(written)

    def end(self, finish: Finish) -> bytes:
        """Why it ended and what it took."""
        written = self._end_block()
        stop_reason, stop_sequence = self._stop(finish)
        stopped = {"stop_reason": stop_reason, "stop_sequence": stop_sequence}
        self._message |= {**stopped, "usage": self._usage_json()}
        return (
            b"".join(written)
            + typed_event({"type": "message_delta", "delta": stopped, "usage": self._message["usage"]})
            + typed_event({"type": "message_stop"})
        )

    def fail(self, error: ApiError) -> bytes:
        """An error in place of the rest."""
        return b"event: error\ndata: %b\n\n" % error_body(error, self._request_id)

    def document(self) -> Json:
        """The message."""
        return self._message

    def _ensure(self, kind: str, make: Callable[[], Json]) -> list[bytes]:
        """Begin a block unless one of this kind is open."""
        if self._open and self._content[-1]["type"] == kind:
            return []
        return self._begin_block(make())

    def _begin_block(self, block: Json) -> list[bytes]:
        ended = self._end_block()
        self._content.append(block)
        self._open = True
        start = {"type": "content_block_start", "index": len(self._content) - 1, "content_block": block}
        return [*ended, typed_event(start)]

    def _delta(self, text: str, delta: Json) -> bytes:
        self._pieces.append(text)
        return typed_event({"type": "content_block_delta", "index": len(self._content) - 1, "delta": delta})

    def _end_block(self) -> list[bytes]:
        """Complete the block that is open, if one is."""
        if not self._open:
            return []
        block, text = self._content[-1], "".join(self._pieces)
        if block["type"] == "tool_use":
            block["input"] = _input(text)
        else:
            block[block["type"]] = text
        self._pieces.clear()
        self._open = False
        return [typed_event({"type": "content_block_stop", "index": len(self._content) - 1})]

    def _stop(self, finish: Finish) -> tuple[str, str | None]:
        if finish.reason == "length":
            return self._length_reason, None
        if self._turn.parser.calls:
            return "tool_use", None
        if isinstance(finish.matched, str):
            return "stop_sequence", finish.matched
        return "end_turn", None

    def _usage_json(self) -> Json:
        """The whole prompt is the sum of what was computed and what was read from the cache."""
        usage = self._turn.work.usage
        return {
            "input_tokens": usage.prompt_tokens - usage.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached_tokens,
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"thinking_tokens": self._turn.parser.reasoning_tokens},
        }


def _input(arguments: str) -> Json:
    """The input of a call; one that was cut is no JSON, and ``stop_reason`` says so."""
    try:
        value = read_json(arguments)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
