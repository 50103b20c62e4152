"""Items, of which a Responses conversation consists, and the messages that a chat template gets for them."""

from collections.abc import Mapping, Sequence
from typing import Any

from pagewire.frontend.openai.errors import ApiError, invalid, unsupported
from pagewire.frontend.openai.parse import show
from pagewire.frontend.responses.ids import new_id

Item = dict[str, Any]
Message = dict[str, Any]

_ROLES = ("user", "assistant", "system", "developer")
_TEXT_PARTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_ID_KINDS = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def read_input(given: str | Sequence[Any]) -> list[Item]:
    """The items of ``input``, checked and in their full form, each with an id.

    Raises ApiError naming the part that is wrong, or that asks for more than text and function calls.
    """
    if isinstance(given, str):
        return [_message("user", [{"type": "input_text", "text": given}], {})]
    if not given:
        raise invalid("Invalid value for 'input': expected at least one item, got none.", "input")
    return [_read_item(item, f"input[{index}]") for index, item in enumerate(given)]


def messages_of(items: Sequence[Item]) -> list[Message]:
    """The messages that items stand for. What the assistant thought, said and called in a row is one message."""
    messages: list[Message] = []
    for item in items:
        match item["type"]:
            case "message" if item["role"] != "assistant":
                messages.append({"role": item["role"], "content": _texts(item["content"])})
            case "message":
                said = _texts(item["content"])
                turn = _assistant_turn(messages)
                if "content" in turn or "tool_calls" in turn:
                    messages.append({"role": "assistant", "content": said})
                else:
                    turn["content"] = said
            case "function_call":
                function = {"name": item["name"], "arguments": item["arguments"]}
                call = {"id": item["call_id"], "type": "function", "function": function}
                _assistant_turn(messages).setdefault("tool_calls", []).append(call)
            case "function_call_output":
                messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": _output_text(item)})
            case "reasoning":
                _add_reasoning(messages, item)
    for message in messages:
        if "reasoning_content" in message:
            message["reasoning_content"] = "".join(message["reasoning_content"])
    return messages


def _read_item(item: Any, where: str) -> Item:
    if not isinstance(item, Mapping):
        raise invalid(f"Invalid value for '{where}': expected an object, got {show(item)}.", where, "invalid_type")
    match item.get("type"):
        case None | "message":
            return _read_message(item, where)
        case "function_call":
            texts = {name: _text(item, name, where) for name in ("call_id", "name", "arguments")}
            return _with_id("function_call", item, {**texts, "status": "completed"})
        case "function_call_output":
            return _read_output(item, where)
        case "reasoning":
            return _read_reasoning(item, where)
        case str() as kind:
            where += ".type"
            raise unsupported(f"'{where}': this server does not support items of type {show(kind)}.", where)
    where += ".type"
    raise invalid(f"Invalid value for '{where}': expected a string.", where, "invalid_type")


def _read_message(item: Mapping[str, Any], where: str) -> Item:
    role = _text(item, "role", where)
    if role not in _ROLES:
        expected = ", ".join(f"'{known}'" for known in _ROLES)
        raise invalid(f"Invalid value for '{where}.role': expected {expected}, got {show(role)}.", f"{where}.role")
    return _message(role, _read_parts(item.get("content"), f"{where}.content", role), item)


def _message(role: str, parts: list[Item], given: Mapping[str, Any]) -> Item:
    return _with_id("message", given, {"role": role, "status": "completed", "content": parts})


def _read_parts(content: Any, where: str, role: str) -> list[Item]:
    """Content parts in their full form; a string is one part."""
    kind = "output_text" if role == "assistant" else "input_text"
    match content:
        case None:
            raise _missing(where)
        case str():
            return [_part(kind, content)]
        case list():
            return [_read_part(part, f"{where}[{index}]", kind) for index, part in enumerate(content)]
    raise invalid(f"Invalid value for '{where}': expected a string or a list, got {show(content)}.", where)


def _read_part(part: Any, where: str, kind: str) -> Item:
    if not isinstance(part, Mapping):
        raise invalid(f"Invalid value for '{where}': expected an object, got {show(part)}.", where, "invalid_type")
    given = _text(part, "type", where)
    if given not in _TEXT_PARTS:
        raise unsupported(f"'{where}': this model takes text only, got a part of type {show(given)}.", where)
    return _part(kind, _text(part, _TEXT_PARTS[given], where))


def _part(kind: str, text: str) -> Item:
    return {"type": kind, "text": text, **({"annotations": []} if kind == "output_text" else {})}


def _read_output(item: Mapping[str, Any], where: str) -> Item:
    output = item.get("output")
    if not isinstance(output, str):
        output = _read_parts(output, f"{where}.output", "tool")
    call_id = _text(item, "call_id", where)
    return _with_id("function_call_output", item, {"call_id": call_id, "output": output, "status": "completed"})


def _read_reasoning(item: Mapping[str, Any], where: str) -> Item:
    if item.get("encrypted_content"):
        where = f"{where}.encrypted_content"
        raise unsupported(f"'{where}': this server cannot read encrypted reasoning; send its content.", where)
    parts: dict[str, list[Item]] = {}
    for name, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
        given = item.get(name) or []
        if not isinstance(given, list):
            raise invalid(f"Invalid value for '{where}.{name}': expected a list.", f"{where}.{name}", "invalid_type")
        parts[name] = [
            {"type": kind, "text": _text(part, "text", f"{where}.{name}[{index}]")} for index, part in enumerate(given)
        ]
    return _with_id("reasoning", item, parts)


def _with_id(kind: str, given: Mapping[str, Any], fields: Item) -> Item:
    """A full item; a client that sends back what it was given keeps the ids."""
    item_id = given.get("id")
    return {"id": item_id if isinstance(item_id, str) and item_id else new_id(_ID_KINDS[kind]), "type": kind, **fields}


def _text(fields: Any, name: str, where: str) -> str:
    where_name = f"{where}.{name}"
    value = fields.get(name) if isinstance(fields, Mapping) else None
    if value is None:
        raise _missing(where_name)
    if not isinstance(value, str):
        raise invalid(
            f"Invalid value for '{where_name}': expected a string, got {show(value)}.", where_name, "invalid_type"
        )
    return value


def _missing(where: str) -> ApiError:
    return invalid(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")


def _texts(parts: Sequence[Item]) -> str | list[Item]:
    """Content for the template: the bare string where there is one part, which is what most templates expect."""
    texts = [part["text"] for part in parts]
    return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]


def _output_text(item: Item) -> str | list[Item]:
    output: str | list[Item] = item["output"]
    return output if isinstance(output, str) else _texts(output)


def _assistant_turn(messages: list[Message]) -> Message:
    """The assistant's message that is still being said, or a new one."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant"})
    return messages[-1]


def _add_reasoning(messages: list[Message], item: Item) -> None:
    """Thoughts, a list for now, come before what is said and called: after that, they begin another message."""
    text = "\n".join(part["text"] for part in item["content"] or item["summary"])
    turn = _assistant_turn(messages)
    if "content" in turn or "tool_calls" in turn:
        messages.append({"role": "assistant"})
        turn = messages[-1]
    turn.setdefault("reasoning_content", []).append(text)
