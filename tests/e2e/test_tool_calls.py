"""A model that knows nothing of tools, and one that speaks at random, must call them if the client insists."""

import json
from typing import Any

import pytest

from tests.e2e.programs import Deployment, Frontend
from tests.tiny_chat_model import NAME

CITIES = ["Rome", "Bern"]


def tool(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "required": list(parameters), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": {**schema, "properties": parameters}}}


TOOLS = [tool("get_weather", {"city": {"enum": CITIES}, "hourly": {"type": "boolean"}}), tool("now", {})]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
ASKED: dict[str, Any] = {
    "model": NAME,
    "messages": [{"role": "user", "content": "Hello"}],
    "tools": TOOLS,
    "max_tokens": 300,
    "parallel_tool_calls": False,
}


def calls_of(choice: Any) -> list[tuple[str, str]]:
    """Names and arguments."""
    return [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]


@pytest.mark.parametrize("parser", ["hermes", "llama3_json", "mistral", "mistral_args", "pythonic", "json"])
def test_enforced_calls_follow_their_schemas_in_every_format(deployment: Deployment, parser: str) -> None:
    frontend = deployment.start_frontend("--tool-call-parser", parser)
    frontend.wait_until_ready()
    with frontend.client() as client:
        for seed in range(3):
            [choice] = client.chat.completions.create(**ASKED, tool_choice=NAMED, seed=seed).choices
            assert choice.finish_reason == "stop"
            assert choice.message.content is None
            [(name, arguments)] = calls_of(choice)
            assert name == "get_weather"
            assert json.loads(arguments)["city"] in CITIES
    frontend.terminate()


def test_a_required_call_streams_as_it_is_answered(frontend: Frontend) -> None:
    with frontend.client() as client:
        asked: dict[str, Any] = {**ASKED, "tool_choice": "required", "seed": 1}
        plain = client.chat.completions.create(**asked).choices[0]
        with client.chat.completions.stream(**asked) as stream:
            streamed = stream.get_final_completion().choices[0]
    assert streamed.finish_reason == plain.finish_reason == "tool_calls"
    assert calls_of(streamed) == calls_of(plain)


def test_a_call_cut_by_max_tokens_finishes_with_length(frontend: Frontend) -> None:
    with frontend.client() as client:
        for limit in (5, 40, 44):
            choice = client.chat.completions.create(**{**ASKED, "max_tokens": limit}, tool_choice=NAMED).choices[0]
            assert choice.finish_reason == "length"
