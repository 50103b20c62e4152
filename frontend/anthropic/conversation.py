"""From Anthropic's messages, which are lists of content blocks, to the messages that a chat template gets."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pagewire.frontend.openai.errors import ApiError, invalid, unsupported
from pagewire.frontend.openai.parse import show

Message = dict[str, Any]

_ROLES = ("user", "assistant", "system")


class ConversationReader:
    """Reads the conversation of one request.

    ``without_effect`` collects what blocks said that has no effect here. All methods raise ApiError naming the part
    that is wrong, or that asks for more than text and tools.
    """

    def __init__(self) -> None:
        """Nothing read yet."""
        self.without_effect: list[str] = []

    def read(self, system: str | Sequence[Any] | None, messages: Sequence[Any]) -> list[Message]:
        """All messages, the system prompt first."""
        read: list[Message] = []
        if system:
            read.append({"role": "system", "content": self._content(system, "system")})
        for index, message in enumerate(messages):
            for part in self._message(message, f"messages.{index}"):
                if not (read and _joined(read[-1], part)):
                    read.append(part)
        return read

    def _message(self, message: Any, where: str) -> list[Message]:
        """One message of the client; its tool results are messages of their own for templates."""
        role = _text(message, "role", where)
        content = message.get("content")
        match role, content:
            case _, None:
                raise _missing(f"{where}.content")
            case (("user" | "assistant" | "system"), str()):
                return [{"role": role, "content": content}]
            case "user", list():
                return self._user(content, f"{where}.content")
            case "assistant", list():
                return [self._assistant(content, f"{where}.content")]
            case "system", list():
                return [{"role": "system", "content": self._content(content, f"{where}.content")}]
        if role in _ROLES:
            raise invalid(f"{where}.content: expected a string or a list of blocks.", f"{where}.content")
        raise invalid(f"{where}.role: expected one of {', '.join(_ROLES)}, got {show(role)}.", f"{where}.role")

    def _user(self, blocks: Sequence[Any], where: str) -> list[Message]:
        results: list[Message] = []
        texts: list[Message] = []
        for index, block in enumerate(blocks):
            place = f"{where}.{index}"
            if self._type(block, place) == "tool_result":
                results.append(self._tool_result(block, place))
            else:
                texts.append(self._text_part(block, place))
        return [*results, {"role": "user", "content": _parts(texts)}] if texts or not results else results

    def _assistant(self, blocks: Sequence[Any], where: str) -> Message:
        texts: list[Message] = []
        thoughts: list[str] = []
        calls: list[Message] = []
        for index, block in enumerate(blocks):
            place = f"{where}.{index}"
            match self._type(block, place):
                case "thinking":
                    thoughts.append(_text(block, "thinking", place))
                case "tool_use":
                    calls.append(_tool_call(block, place))
                case _:
                    texts.append(self._text_part(block, place))
        message: Message = {"role": "assistant"}
        if thoughts:
            message["reasoning_content"] = "\n".join(thoughts)
        if texts or not calls:
            message["content"] = _parts(texts)
        return message | {"tool_calls": calls} if calls else message

    def _tool_result(self, block: Mapping[str, Any], where: str) -> Message:
        content = block.get("content")
        said = "" if content is None else self._content(content, f"{where}.content")
        if block.get("is_error"):
            # Templates know results, not failures: the model is told in words.
            said = f"Error: {said}" if isinstance(said, str) else [{"type": "text", "text": "Error:"}, *said]
        return {"role": "tool", "tool_call_id": _text(block, "tool_use_id", where), "content": said}

    def _content(self, content: Any, where: str) -> str | list[Message]:
        """A string, or blocks of text only."""
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise invalid(f"{where}: expected a string or a list of blocks, got {show(content)}.", where)
        return _parts([self._text_part(block, f"{where}.{index}") for index, block in enumerate(content)])

    def _text_part(self, block: Any, where: str) -> Message:
        kind = self._type(block, where)
        if kind != "text":
            raise unsupported(f"{where}: this model takes text only, got a block of type {show(kind)}.", where)
        return {"type": "text", "text": _text(block, "text", where)}

    def _type(self, block: Any, where: str) -> str:
        kind = _text(block, "type", where)
        for name in ("cache_control", "citations"):
            if block.get(name) and name not in self.without_effect:
                self.without_effect.append(name)
        return kind


def _joined(message: Message, following: Message) -> bool:
    """Add a message to the one before it, in place, if both say something in the same role: they are one turn."""
    says_only = message.keys() == following.keys() == {"role", "content"}
    if not says_only or message["role"] != following["role"]:
        return False
    parts = _as_parts(message["content"])
    parts += _as_parts(following["content"])
    message["content"] = parts
    return True


def _as_parts(content: str | list[Message]) -> list[Message]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _tool_call(block: Mapping[str, Any], where: str) -> Message:
    given = block.get("input")
    if not isinstance(given, Mapping):
        raise invalid(f"{where}.input: expected an object, got {show(given)}.", f"{where}.input")
    try:
        arguments = json.dumps(given, ensure_ascii=False)
    except RecursionError:
        raise invalid(f"{where}.input: nested too deeply.", f"{where}.input") from None
    function = {"name": _text(block, "name", where), "arguments": arguments}
    return {"id": _text(block, "id", where), "type": "function", "function": function}


def _parts(texts: list[Message]) -> str | list[Message]:
    """Content for the template: the bare string where there is one part, which is what most templates expect."""
    if not texts:
        return ""
    return str(texts[0]["text"]) if len(texts) == 1 else texts


def _text(block: Any, name: str, where: str) -> str:
    if not isinstance(block, Mapping):
        raise invalid(f"{where}: expected an object, got {show(block)}.", where)
    value = block.get(name)
    if value is None:
        raise _missing(f"{where}.{name}")
    if not isinstance(value, str):
        raise invalid(f"{where}.{name}: expected a string, got {show(value)}.", f"{where}.{name}")
    return value


def _missing(where: str) -> ApiError:
    return invalid(f"{where}: Field required.", where, "missing_required_parameter")
