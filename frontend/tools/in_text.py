"""Tools for models whose chat template knows of none: what they are, and what was called, is written into the messages.

The words and tags are those of the shipped template ``tool_use``, and calls are expected in the format ``hermes``.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from pagewire.frontend.surrogates import read_json
from pagewire.frontend.template import content_text
from pagewire.frontend.tools.hermes import CLOSE, OPEN

Message = Mapping[str, Any]

_SYSTEM_ROLES = ("system", "developer")


def has_calls(messages: Sequence[Message]) -> bool:
    """Whether tools were called in earlier turns."""
    return any(message.get("tool_calls") for message in messages)


def with_tools_in_text(messages: Sequence[Message], tools: Sequence[Any]) -> list[Message]:
    """Messages without fields and roles for tools that say the same; the caller's are not touched.

    ``tools`` may be empty: the model is shown none, but what was called earlier. Raises TemplateError for content that
    is no text.
    """
    told: list[Message] = []
    for are_results, group in groupby(enumerate(messages), lambda entry: entry[1]["role"] == "tool"):
        if are_results:
            # Results of one round of calls share a turn.
            results = (_result(message, f"messages[{index}].content") for index, message in group)
            told.append({"role": "user", "content": "\n".join(results)})
        else:
            told += (_with_calls_in_text(message, f"messages[{index}].content") for index, message in group)
    if not tools:
        return told
    instruction = _instruction(tools)
    if told[0]["role"] in _SYSTEM_ROLES:
        system = content_text(told[0].get("content"), "messages[0].content")
        return [{**told[0], "content": f"{system}\n\n{instruction}" if system else instruction}, *told[1:]]
    return [{"role": "system", "content": instruction}, *told]


def _instruction(tools: Sequence[Any]) -> str:
    signatures = "\n".join(_json(tool) for tool in tools)
    return (
        f"You can call functions. Their signatures, one a line:\n<tools>\n{signatures}\n</tools>\n"
        "To call one, answer with its name and arguments as JSON:\n"
        f'{OPEN}\n{{"name": "NAME", "arguments": {{}}}}\n{CLOSE}'
    )


def _result(message: Message, where: str) -> str:
    return f"<tool_response>\n{content_text(message.get('content'), where)}\n</tool_response>"


def _with_calls_in_text(message: Message, where: str) -> Message:
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return message
    text = content_text(message.get("content"), where)
    written = [f"{OPEN}\n{_json(_call(call))}\n{CLOSE}" for call in calls]
    return {**message, "content": "\n".join([text, *written] if text else written), "tool_calls": None}


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        # A broken call in the history stays as it was written.
        with suppress(ValueError):
            arguments = read_json(arguments)
    return {"name": function.get("name"), "arguments": {} if arguments is None else arguments}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
