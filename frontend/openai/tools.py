"""The tools of a request: checked, and reduced to those that the model may call."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pagewire.frontend.openai.errors import ApiError, invalid, reworded, unsupported
from pagewire.frontend.openai.parse import show

# As at OpenAI, and dots, which names that come from other protocols have.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_TOOLS = 512

Mode = Literal["auto", "required", "named"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call; ``parameters`` is the JSON Schema of its arguments, ``where`` its place.

    ``strict`` asks for arguments that follow the schema even where the model calls by its own choice.
    """

    name: str
    parameters: Mapping[str, Any]
    where: str
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a request says about calls. ``shown`` are the tools as the client wrote them, for the template.

    ``mode`` ``named`` means that the one tool left must be called; ``max_calls`` None is any number of calls.
    """

    shown: Sequence[Mapping[str, Any]]
    tools: Sequence[Tool]
    mode: Mode
    max_calls: int | None

    @property
    def names(self) -> list[str]:
        """The names that the model may call."""
        return [tool.name for tool in self.tools]


def tool_use(tools: Sequence[Any] | None, choice: Any, *, parallel: bool = True) -> ToolUse | None:
    """Check ``tools`` and ``tool_choice``; None means that the answer is text only, and the model sees no tools.

    ``parallel`` is whether an answer may hold several calls. Raises ApiError naming the field at fault.
    """
    if tools is None:
        _check_choice_without_tools(choice)
        return None
    checked = _check_tools(tools)
    mode, names = _read_choice(choice, [tool.name for tool in checked])
    if mode is None:
        return None
    chosen = [index for index, tool in enumerate(checked) if tool.name in names]
    return ToolUse(
        shown=[tools[index] for index in chosen],
        tools=[checked[index] for index in chosen],
        mode=mode,
        max_calls=None if parallel and mode != "named" else 1,
    )


def placed(use: ToolUse | None, words: Mapping[str, str]) -> ToolUse | None:
    """The same with the places of its tools named as another API does, see ``reworded``."""
    if use is None:
        return None
    return replace(use, tools=[replace(tool, where=reworded(tool.where, words)) for tool in use.tools])


def _check_tools(tools: Sequence[Any]) -> list[Tool]:
    if not 1 <= len(tools) <= _MAX_TOOLS:
        raise invalid(f"Invalid value for 'tools': expected 1 to {_MAX_TOOLS} tools, got {len(tools)}.", "tools")
    checked = [_check_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    seen: set[str] = set()
    for index, tool in enumerate(checked):
        if tool.name in seen:
            where = f"tools[{index}].function.name"
            raise invalid(f"Invalid value for '{where}': there are two tools named {show(tool.name)}.", where)
        seen.add(tool.name)
    return checked


def _check_tool(tool: Any, where: str) -> Tool:
    if not isinstance(tool, Mapping):
        raise invalid(f"Invalid value for '{where}': expected an object, got {show(tool)}.", where, "invalid_type")
    kind = tool.get("type")
    if kind is None:
        raise _missing(f"{where}.type")
    if kind != "function":
        raise unsupported(f"'{where}.type': expected 'function', got {show(kind)}.", f"{where}.type")
    function = tool.get("function")
    where = f"{where}.function"
    if function is None:
        raise _missing(where)
    if not isinstance(function, Mapping):
        raise invalid(f"Invalid value for '{where}': expected an object, got {show(function)}.", where, "invalid_type")
    return Tool(
        _check_name(function.get("name"), f"{where}.name"),
        _typed(function, "parameters", Mapping, "an object", where) or {"type": "object", "properties": {}},
        f"{where}.parameters",
        bool(_typed(function, "strict", bool, "a boolean", where)),
    )


def _check_name(name: Any, where: str) -> str:
    if name is None:
        raise _missing(where)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        expected = "1 to 64 letters, digits, '_', '-' or '.'"
        raise invalid(f"Invalid value for '{where}': expected {expected}, got {show(name)}.", where)
    return name


def _typed(function: Mapping[str, Any], key: str, kind: type, expected: str, where: str) -> Any:
    """The value of an optional field; null counts as absent."""
    value = function.get(key)
    if value is not None and not isinstance(value, kind):
        where = f"{where}.{key}"
        raise invalid(f"Invalid value for '{where}': expected {expected}, got {show(value)}.", where, "invalid_type")
    return value


def _check_choice_without_tools(choice: Any) -> None:
    if choice not in (None, "none", "auto"):
        raise invalid("'tool_choice' is only allowed when 'tools' are given.", "tool_choice")


def _read_choice(choice: Any, names: Sequence[str]) -> tuple[Mode | None, Sequence[str]]:
    """The mode, None for no calls at all, and the names that may be called."""
    match choice:
        case "none":
            return None, names
        case None | "auto":
            return "auto", names
        case "required":
            return "required", names
        case {"type": "function"}:
            return "named", [_choose(choice, names, "tool_choice")]
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(allowed)}}:
            where = "tool_choice.allowed_tools.tools"
            if not allowed:
                raise invalid(f"Invalid value for '{where}': expected at least one tool, got none.", where)
            return mode, [_choose(tool, names, f"{where}[{index}]") for index, tool in enumerate(allowed)]
    expected = "'none', 'auto', 'required', a function, or allowed tools with a mode"
    raise invalid(f"Invalid value for 'tool_choice': expected {expected}, got {show(choice)}.", "tool_choice")


def _choose(choice: Any, names: Sequence[str], where: str) -> str:
    """The name in ``{"type": "function", "function": {"name": ...}}``."""
    match choice:
        case {"function": {"name": str(name)}}:
            if name in names:
                return name
            where = f"{where}.function.name"
            raise invalid(f"Invalid value for '{where}': there is no tool named {show(name)} in 'tools'.", where)
    raise _missing(f"{where}.function.name")


def _missing(where: str) -> ApiError:
    return invalid(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
