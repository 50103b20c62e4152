"""What a template gets to see of a conversation: plain data in the shape that templates are written for."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pagewire.frontend.surrogates import read_json
from pagewire.frontend.templates.errors import TemplateError

ContentFormat = Literal["string", "openai"]

# Older and rival names of the same field; the first is the one that templates read.
_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
# What a part may be; others, such as an image, no template gets to see. Not a set, in which not every value can be
# looked up: a client's type may be a list.
TEXT_TYPES = ("text", "input_text", "output_text", "refusal")
# Between the text parts of a message whose template wants a string.
PART_SEPARATOR = "\n"


def content_text(content: Any, where: str = "content") -> str:
    """Return the text of a message's content (a string, text parts or None) as a template of format string gets it.

    Raises TemplateError naming ``where`` for anything but text.
    """
    return PART_SEPARATOR.join(content_texts(content, where))


def content_texts(content: Any, where: str = "content") -> list[str]:
    """Return the texts in a message's content: one of a string, one of each part, none of None.

    Raises TemplateError naming ``where`` for anything but text.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list | tuple):
        raise TemplateError(f"{where} must be a string or a list of content parts", where)
    return [_part_text(part, f"{where}[{index}]") for index, part in enumerate(content)]


def prepare_messages(
    messages: Sequence[Any], content_format: ContentFormat, keep_strings: bool
) -> list[dict[str, Any]]:
    """Return copies of ``messages`` as a template expects them; the caller's are never touched.

    ``keep_strings`` says that a template for parts takes plain strings as well.
    """
    if not messages:
        raise TemplateError("messages must have at least one entry")
    return [
        _prepare_message(message, f"messages[{index}]", content_format, keep_strings)
        for index, message in enumerate(messages)
    ]


def plain(value: Any) -> Any:
    """Return ``value`` rebuilt from plain JSON types, so that a template never holds an object with other methods."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TemplateError(f"a chat template is given JSON values only, not {type(value).__name__}")


def _prepare_message(message: Any, where: str, content_format: ContentFormat, keep_strings: bool) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise TemplateError(f"{where} must be an object", where)
    if not isinstance(message.get("role"), str):
        raise TemplateError(f"{where}.role must be a string", f"{where}.role")
    prepared: dict[str, Any] = {}
    for key, value in message.items():
        if key == "content":
            prepared[key] = _prepare_content(value, f"{where}.content", content_format, keep_strings)
        elif value is not None and not (key == "tool_calls" and not value):
            # Templates test for presence: a key without a value must be as good as absent.
            prepared[key] = _prepare_tool_calls(plain(value)) if key == "tool_calls" else plain(value)
    if "content" not in prepared and ("tool_calls" in prepared or prepared["role"] == "assistant"):
        # An answer may have been nothing but calls, or cut off while the model was thinking.
        prepared["content"] = _prepare_content(None, f"{where}.content", content_format, keep_strings)
    return _name_reasoning(prepared)


def _prepare_content(
    content: Any, where: str, content_format: ContentFormat, keep_strings: bool
) -> str | list[dict[str, Any]]:
    if content_format == "string":
        return content_text(content, where)
    texts = content_texts(content, where)
    if keep_strings and len(texts) <= 1:
        # One part is the same prompt as the bare string.
        return texts[0] if texts else ""
    return [{"type": "text", "text": text} for text in texts]


def _part_text(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise TemplateError(f"{where} must be a content part, an object with a type", where)
    kind = part.get("type", "text")
    if kind not in TEXT_TYPES:
        shown = repr(kind) if isinstance(kind, str) else type(kind).__name__
        raise TemplateError(f"{where} is of type {shown}: this model takes text only", where)
    text = part.get("refusal" if kind == "refusal" else "text")
    if not isinstance(text, str):
        raise TemplateError(f"{where} has no text", where)
    return text


def _prepare_tool_calls(calls: Any) -> Any:
    if not isinstance(calls, list):
        return calls
    return [_prepare_tool_call(call) for call in calls]


def _prepare_tool_call(call: Any) -> Any:
    """Give templates the arguments as an object: on the wire they are JSON text, templates write JSON themselves."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    return {**call, "function": {**function, "arguments": _parse_arguments(function.get("arguments"))}}


def _parse_arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        parsed = read_json(arguments) if arguments.strip() else {}
    except ValueError:
        # A model's broken call in the history must not end the conversation.
        return arguments
    if parsed is None:
        return {}
    return parsed if isinstance(parsed, dict) else arguments


def _name_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    reasoning = next((message[name] for name in _REASONING_FIELDS if name in message), None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}
