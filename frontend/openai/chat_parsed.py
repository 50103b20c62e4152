"""How answers to chats look if they may hold reasoning and tool calls."""

from collections.abc import Iterable, Sequence
from typing import Any

from pagewire.frontend.answers import AnswerParser
from pagewire.frontend.openai.chat_shape import ChatFrame, ChatShape
from pagewire.frontend.openai.choices import Collected
from pagewire.frontend.openai.logprobs import chat_logprobs
from pagewire.frontend.openai.parsing import Parsing
from pagewire.frontend.openai.sse import encode
from pagewire.frontend.tools.events import CallArguments, CallStart, Event, Reasoning, Text
from pagewire.protocol.messages import Delta, Finish


class ParsedChatShape(ChatShape):
    """The shape of answers that are taken apart. The joined chunks of a stream say the same as the plain answer."""

    def __init__(self, frame: ChatFrame, parsing: Parsing):
        """``parsing`` says what to look for."""
        super().__init__(frame)
        self._mode = parsing.mode
        # What is echoed is a part of the answer if the answer continues it, else a message of its own.
        echoes = bool(frame.echo) and parsing.continues
        self._parsers = [parsing.new_parser(from_start=echoes) for _ in range(frame.chat.n)]
        self._echoed = [parser.feed(frame.echo, ()) if echoes else _text(frame.echo) for parser in self._parsers]
        self.reasoning_tokens = self._reasoning_tokens if parsing.tags else None

    def opening(self) -> Iterable[bytes]:
        """The role of every choice, then what every choice echoes."""
        yield from self._roles()
        for index, events in enumerate(self._echoed):
            yield from (encode(_chunk(index, _as_delta(event))) for event in events)

    def pieces(self, index: int, delta: Delta) -> Sequence[bytes]:
        """The chunks' choices for a delta: one for each thing that it adds, and one for the end."""
        parser = self._parsers[index]
        events = parser.feed(delta.text, delta.ids)
        if delta.finish:
            events += parser.finish()
        choices = [_chunk(index, _as_delta(event)) for event in events]
        if self._chat.logprobs and delta.logprobs:
            choices = choices or [_chunk(index, {})]
            choices[0]["logprobs"] = chat_logprobs(delta.logprobs, self._chat.top_logprobs)
        if self._chat.return_token_ids and delta.ids:
            choices = choices or [_chunk(index, {})]
            choices[0]["token_ids"] = delta.ids
        if delta.finish:
            choices.append({**_chunk(index, {}), **self._ending(parser, delta.finish)})
        return [encode(choice) for choice in choices]

    def _choice(self, index: int, choice: Collected) -> dict[str, Any]:
        parser = self._parsers[index]
        events = [*parser.feed(choice.text, choice.ids), *parser.finish()]
        answer = super()._choice(index, choice)
        answer["message"] = self._message([*self._echoed[index], *events])
        return answer | self._ending(parser, choice.finish) if choice.finish else answer

    def _message(self, events: Iterable[Event]) -> dict[str, Any]:
        text, reasoning, calls = "", "", list[dict[str, Any]]()
        for event in events:
            match event:
                case Text(piece):
                    text += piece
                case Reasoning(piece):
                    reasoning += piece
                case CallStart(_, call_id, name):
                    calls.append(_call(call_id, name))
                case CallArguments(index, piece):
                    calls[index]["function"]["arguments"] += piece
        message: dict[str, Any] = {"role": self._role, "content": text or (None if calls else ""), "refusal": None}
        if reasoning:
            message |= _reasoning(reasoning)
        return message | {"tool_calls": calls} if calls else message

    def _ending(self, parser: AnswerParser, finish: Finish) -> dict[str, Any]:
        """Calls that the model chose to make are a reason to finish; one it was told to make, or a part, is not."""
        called = finish.reason == "stop" and parser.calls and self._mode != "named"
        return {"finish_reason": "tool_calls" if called else finish.reason, "stop_reason": finish.matched}

    def _reasoning_tokens(self) -> int:
        return sum(parser.reasoning_tokens for parser in self._parsers)


def _text(text: str) -> list[Event]:
    return [Text(text)] if text else []


def _chunk(index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


def _as_delta(event: Event) -> dict[str, Any]:
    """What one event adds to the message. Id, type and name of a call go out once: clients join what is repeated."""
    match event:
        case Text(text):
            return {"content": text}
        case Reasoning(text):
            return _reasoning(text)
        case CallStart(index, call_id, name):
            return {"tool_calls": [{"index": index, **_call(call_id, name)}]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _reasoning(text: str) -> dict[str, Any]:
    """Half of the clients know it by the one name, half by the other."""
    return {"reasoning_content": text, "reasoning": text}


def _call(call_id: str, name: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
