"""The tools of a Responses request, which are flat, as the nested ones that chats and templates know."""

from collections.abc import Mapping
from typing import Any

from pagewire.frontend.openai.errors import worded
from pagewire.frontend.openai.tools import ToolUse, placed, tool_use
from pagewire.frontend.responses.schema import ResponsesRequest

_WORDS = {".function": "", "tool_choice.allowed_tools": "tool_choice"}
_FUNCTION_FIELDS = ("name", "description", "parameters", "strict")


def response_tools(request: ResponsesRequest) -> ToolUse | None:
    """Check tools and choice; None if the answer is text only. Raises ApiError naming the field at fault."""
    # An empty list is how several clients say that there are none.
    tools = [_nested(tool) for tool in request.tools] if request.tools else None
    with worded(_WORDS):
        use = tool_use(tools, _nested_choice(request.tool_choice), parallel=request.parallel_tool_calls)
    return placed(use, _WORDS)


def _nested(tool: Any) -> Any:
    """A function in its nested form; anything else as it is, for ``tool_use`` to refuse."""
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        return tool
    return {"type": "function", "function": {name: tool[name] for name in _FUNCTION_FIELDS if name in tool}}


def _nested_choice(choice: Any) -> Any:
    match choice:
        case {"type": "allowed_tools", "tools": list(allowed)}:
            tools = [_nested(tool) for tool in allowed]
            return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": tools}}
        case {"type": "function"}:
            return _nested(choice)
    return choice
