"""A response as it grows: its events with their sequence numbers, and the response object itself."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pagewire.frontend.answers import AnswerParser
from pagewire.frontend.openai.errors import ApiError
from pagewire.frontend.openai.logprobs import chat_logprobs
from pagewire.frontend.openai.sse import KEEP_ALIVE, typed_event
from pagewire.frontend.openai.turn import Turn
from pagewire.frontend.openai.usage import UsageCounter
from pagewire.frontend.responses.growing import MESSAGE, REASONING, Events, GrowingCall, GrowingText, TextKind
from pagewire.frontend.tools.events import CallArguments, CallStart, Event, Reasoning, Text
from pagewire.protocol.messages import Finish, Logprob

Json = dict[str, Any]

_ERROR_CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


class ResponseWriter:
    """Writes one response.

    Output items follow one another: an item is complete as soon as something of another kind begins. Those that are
    complete are in the response's ``output``.
    """

    keep_alive = KEEP_ALIVE

    def __init__(
        self, head: Mapping[str, Any], turn: Turn, on_end: Callable[[Json], None], top_logprobs: int | None = None
    ):
        """``head`` is the response object but for what generating changes; ``on_end`` gets it when it is final.

        ``top_logprobs`` None leaves log-probabilities out.
        """
        self._turn = turn
        self._on_end = on_end
        self._top_logprobs = top_logprobs
        self._sequence_number = 0
        self._growing: GrowingText | GrowingCall | None = None
        self._output: list[Json] = []
        # Log-probabilities of tokens whose text has not come out yet.
        self._pending: list[Json] = []
        self._response: Json = {
            **head,
            "status": "in_progress",
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "output": self._output,
            "usage": None,
        }

    def begin(self) -> bytes:
        """The response exists, and something works on it."""
        created = self._event("response.created", {"response": self._response})
        return created + self._event("response.in_progress", {"response": self._response})

    def add(self, events: Sequence[Event], logprobs: Sequence[Logprob]) -> bytes:
        """More of the output. Log-probabilities go out with the text that comes with or after their tokens."""
        written: list[bytes] = []
        self._note_logprobs(logprobs)
        for event in events:
            match event:
                case Text(text):
                    written.append(self._text(MESSAGE, text))
                case Reasoning(text):
                    written.append(self._text(REASONING, text))
                case CallStart(_, call_id, name):
                    written.append(self._open(partial(GrowingCall, call_id=call_id, name=name)))
                case CallArguments(_, text):
                    assert isinstance(self._growing, GrowingCall)
                    written.append(self._events(self._growing.add(text)))
        return b"".join(written)

    def end(self, finish: Finish) -> bytes:
        """The end of the output and the final response, ``completed`` or ``incomplete``."""
        status = "incomplete" if finish.reason == "length" else "completed"
        if self._pending and isinstance(self._growing, GrowingText) and self._growing.kind is MESSAGE:
            written = self._text(MESSAGE, "")
        elif not self._growing and not self._output:
            # Clients look for a message even if it says nothing.
            written = self._open(partial(GrowingText, kind=MESSAGE))
        else:
            written = b""
        written += self._close("incomplete" if self._turn.parser.is_inside_call else status)
        self._response["status"] = status
        if status == "completed":
            self._response["completed_at"] = int(time.time())
        else:
            self._response["incomplete_details"] = {"reason": "max_output_tokens"}
        self._response["usage"] = _usage_json(self._turn.work.usage, self._turn.parser)
        self._on_end(self._response)
        return written + self._event(f"response.{status}", {"response": self._response})

    def fail(self, error: ApiError) -> bytes:
        """The response as far as it came, with what went wrong."""
        if self._growing:
            self._output.append(self._growing.final("incomplete"))
        self._response["status"] = "failed"
        self._response["error"] = {"code": _ERROR_CODES.get(error.status, "server_error"), "message": error.message}
        return self._event("response.failed", {"response": self._response})

    def document(self) -> Json:
        """The response object."""
        return self._response

    def _text(self, kind: TextKind, text: str) -> bytes:
        """Add to the item that grows if it is of that kind, else to a new one."""
        opened = b""
        if not isinstance(self._growing, GrowingText) or self._growing.kind is not kind:
            opened = self._open(partial(GrowingText, kind=kind))
        assert isinstance(self._growing, GrowingText)
        logprobs = self._take_logprobs() if kind.has_logprobs else ()
        return opened + self._events(self._growing.add(text, logprobs))

    def _open(self, make: Callable[[int], GrowingText | GrowingCall]) -> bytes:
        """Begin an item, made for its place in the output."""
        closed = self._close("completed")
        self._growing = make(len(self._output))
        return closed + self._events(self._growing.begin())

    def _close(self, status: str) -> bytes:
        """Complete the item that grows, if there is one."""
        item, self._growing = self._growing, None
        if item is None:
            return b""
        self._output.append(item.final(status))
        return self._events(item.end(status))

    def _events(self, events: Events) -> bytes:
        return b"".join([self._event(kind, fields) for kind, fields in events])

    def _event(self, kind: str, fields: Json) -> bytes:
        number = self._sequence_number
        self._sequence_number += 1
        return typed_event({"type": kind, "sequence_number": number, **fields})

    def _note_logprobs(self, entries: Sequence[Logprob]) -> None:
        shown = chat_logprobs(entries, self._top_logprobs) if self._top_logprobs is not None else None
        self._pending += shown["content"] if shown else []

    def _take_logprobs(self) -> list[Json]:
        taken, self._pending = self._pending, []
        return taken


def _usage_json(usage: UsageCounter, parser: AnswerParser) -> Json:
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return {
        "input_tokens": prompt,
        # The cache is written to at no cost, so nothing is counted as written.
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": parser.reasoning_tokens},
        "total_tokens": prompt + completion,
    }
