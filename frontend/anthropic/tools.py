"""Anthropic's tools and choices as those that chats and templates know."""

from collections.abc import Mapping, Sequence
from typing import Any

from pagewire.frontend.openai.errors import invalid, unsupported, worded
from pagewire.frontend.openai.parse import show
from pagewire.frontend.openai.tools import ToolUse, placed, tool_use

_WORDS = {".function.parameters": ".input_schema", ".function": ""}


def anthropic_tools(tools: Sequence[Any], choice: Mapping[str, Any] | None) -> ToolUse | None:
    """Check tools and choice; None if the answer is text only. Raises ApiError naming the field at fault."""
    given = choice or {"type": "auto"}
    known = [_nested(tool, f"tools.{index}") for index, tool in enumerate(tools)] or None
    with worded(_WORDS):
        use = tool_use(known, _choice(given), parallel=not given.get("disable_parallel_tool_use"))
    return placed(use, _WORDS)


def _nested(tool: Any, where: str) -> Any:
    if not isinstance(tool, Mapping):
        raise invalid(f"{where}: expected an object, got {show(tool)}.", where)
    if tool.get("type") not in (None, "custom"):
        raise unsupported(f"{where}: this server has no tool of type {show(tool['type'])}.", where)
    if tool.get("input_schema") is None:
        raise invalid(f"{where}.input_schema: Field required.", f"{where}.input_schema", "missing_required_parameter")
    function = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool["input_schema"],
        "strict": tool.get("strict"),
    }
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _choice(choice: Mapping[str, Any]) -> Any:
    match choice.get("type"):
        case "auto" | "none" as mode:
            return mode
        case "any":
            return "required"
        case "tool":
            return {"type": "function", "function": {"name": choice.get("name")}}
    raise invalid("tool_choice.type: expected 'auto', 'any', 'tool' or 'none'.", "tool_choice.type")
