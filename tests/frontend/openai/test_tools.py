"""The tools of a request are checked, and the choice says which of them may be called."""

from typing import Any

import pytest

from pagewire.frontend.openai.errors import ApiError
from pagewire.frontend.openai.tools import tool_use

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def tool(name: Any = "get_weather", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA, **function}}


def named(name: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]}}


TOOLS = [tool(), tool("now", parameters=None, strict=True)]


def test_tools_may_be_called_by_the_models_choice_unless_said_otherwise() -> None:
    use = tool_use(TOOLS, None, parallel=True)
    assert use is not None
    assert (use.mode, use.names, use.max_calls, use.shown) == ("auto", ["get_weather", "now"], None, TOOLS)
    assert [(entry.strict, entry.parameters) for entry in use.tools] == [
        (False, SCHEMA),
        (True, {"type": "object", "properties": {}}),
    ]


@pytest.mark.parametrize(
    ("choice", "parallel", "mode", "names", "max_calls"),
    [
        ("auto", False, "auto", ["get_weather", "now"], 1),
        ("required", True, "required", ["get_weather", "now"], None),
        (named("now"), True, "named", ["now"], 1),
        (allowed("auto", "now"), True, "auto", ["now"], None),
        (allowed("required", "get_weather"), False, "required", ["get_weather"], 1),
    ],
)
def test_the_choice_decides_what_may_be_called(
    choice: Any, parallel: bool, mode: str, names: list[str], max_calls: int | None
) -> None:
    use = tool_use(TOOLS, choice, parallel=parallel)
    assert use is not None
    assert (use.mode, use.names, use.max_calls) == (mode, names, max_calls)
    assert [entry["function"]["name"] for entry in use.shown] == names


@pytest.mark.parametrize(("tools", "choice"), [(None, None), (None, "none"), (None, "auto"), (TOOLS, "none")])
def test_without_tools_or_with_the_choice_none_there_are_no_calls(tools: Any, choice: Any) -> None:
    assert tool_use(tools, choice, parallel=True) is None


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ([], None, "tools"),
        ([tool()] * 513, None, "tools"),
        (["get_weather"], None, "tools[0]"),
        ([{"function": {"name": "f"}}], None, "tools[0].type"),
        ([{"type": "web_search"}], None, "tools[0].type"),
        ([{"type": "function"}], None, "tools[0].function"),
        ([{"type": "function", "function": "f"}], None, "tools[0].function"),
        ([tool(None)], None, "tools[0].function.name"),
        ([tool("two words")], None, "tools[0].function.name"),
        ([tool("x" * 65)], None, "tools[0].function.name"),
        ([tool(), tool()], "none", "tools[1].function.name"),
        ([tool(parameters="none")], None, "tools[0].function.parameters"),
        ([tool(strict="yes")], None, "tools[0].function.strict"),
        (None, "required", "tool_choice"),
        (None, named("f"), "tool_choice"),
        (TOOLS, "any", "tool_choice"),
        (TOOLS, 3, "tool_choice"),
        (TOOLS, {"type": "custom"}, "tool_choice"),
        (TOOLS, {"type": "function"}, "tool_choice.function.name"),
        (TOOLS, named("nope"), "tool_choice.function.name"),
        (TOOLS, named(["now"]), "tool_choice.function.name"),
        (TOOLS, allowed("none", "now"), "tool_choice"),
        (TOOLS, allowed("auto"), "tool_choice.allowed_tools.tools"),
        (TOOLS, allowed("auto", "now", "nope"), "tool_choice.allowed_tools.tools[1].function.name"),
    ],
)
def test_what_is_wrong_is_named(tools: Any, choice: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        tool_use(tools, choice, parallel=True)
    assert (caught.value.status, caught.value.param) == (400, param)
