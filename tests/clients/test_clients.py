"""Clients that people use, each by all the ways it has of asking, against the real programs with the demo model.

What the answer must be is known from a request without any client. Calls and objects are enforced, so that even this
small model gives the right ones.
"""

import json
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.clients.driving import Report, command_of, command_on_node, drive
from tests.clients.environments import DRIVERS
from tests.e2e.programs import Deployment, Frontend

pytestmark = pytest.mark.clients

MODEL = "smollm2-135m-instruct"
EMBEDDING_SIZE = 576
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
TRIP = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Bern"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TASK: dict[str, Any] = {
    "model": MODEL,
    "messages": MESSAGES,
    "max_tokens": 24,
    "max_tokens_of_calls": 120,
    "tool": {"name": "plan_trip", "description": "Plan a trip.", "parameters": TRIP},
    "result": '{"cost": 120}',
    "too_long": "word " * 9000,
}
# How the clients, or the interfaces that they ask, say that the model came to its end.
ENDED = {"stop", "end_turn", "completed", None}


@dataclass(frozen=True)
class Client:
    """How to start a driver, and all that its report must hold: section to ways."""

    command: Callable[[], list[str]]
    ways: dict[str, set[str]]


def python_client(name: str, **ways: set[str]) -> Client:
    return Client(lambda: command_of(DRIVERS / f"drive_{name}.py", name), ways)


CLIENTS = {
    "openai": Client(
        lambda: [sys.executable, str(DRIVERS / "drive_openai.py")],
        {
            "answers": {"plain", "stream", "stream helper", "responses", "responses stream helper"},
            "calls": {"plain", "stream helper", "responses"},
            "objects": {"parse", "responses parse"},
            "others": {"after a call", "embedding", "models", "too long"},
        },
    ),
    "openai-node": Client(
        lambda: command_on_node("drive_openai.mjs"),
        {
            "answers": {"plain", "stream", "stream helper", "responses", "responses stream helper"},
            "calls": {"plain", "stream helper"},
            "objects": {"parse"},
            "others": {"after a call", "embedding", "models", "too long"},
        },
    ),
    "ai-sdk": Client(
        lambda: command_on_node("drive_ai_sdk.mjs"),
        {
            "answers": {"generateText", "streamText"},
            "calls": {"generateText", "streamText"},
            "objects": {"generateText", "streamText"},
            "others": {"after a call", "too long"},
        },
    ),
    "anthropic": python_client(
        "anthropic",
        answers={"plain", "stream helper"},
        calls={"plain", "stream helper"},
        others={"after a call", "count of tokens", "too long"},
    ),
    "langchain": python_client(
        "langchain",
        answers={"invoke", "stream", "invoke responses", "stream responses"},
        calls={"invoke", "stream"},
        objects={"json_schema", "function_calling"},
        others={"after a call", "too long"},
    ),
    "litellm": python_client(
        "litellm",
        answers={"openai plain", "openai stream", "hosted_vllm plain", "hosted_vllm stream"},
        calls={"openai plain", "openai stream", "hosted_vllm plain", "hosted_vllm stream"},
        objects={"openai", "hosted_vllm"},
        others={"after a call", "too long"},
    ),
    "llm": python_client(
        "llm",
        answers={"plain", "stream", "command line"},
        objects={"plain", "stream"},
        others={"with tools", "too long"},
    ),
}


@pytest.fixture(scope="module")
def frontend() -> Iterator[Frontend]:
    with Deployment.running() as deployment:
        deployment.start_engine("demo", "--num-kv-blocks", "1024")
        frontend = deployment.start_frontend()
        frontend.wait_until_ready()
        yield frontend


@pytest.fixture(scope="module")
def expected(frontend: Frontend) -> dict[str, Any]:
    """The server's answer to the question, as it is without a client."""
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": TASK["max_tokens"], "temperature": 0}
    request = urllib.request.Request(
        f"{frontend.url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def report(client: str, frontend: Frontend) -> Report:
    return drive(CLIENTS[client].command(), {**TASK, "base_url": f"{frontend.url}/v1"})


def test_every_way_to_ask_was_tried(client: str, report: Report) -> None:
    assert {section: set(ways) for section, ways in report.items() if section != "failures"} == CLIENTS[client].ways


def test_every_way_gives_the_answer_and_its_usage(report: Report, expected: dict[str, Any]) -> None:
    text = expected["choices"][0]["message"]["content"]
    assert "Paris" in text
    for answer in report["answers"].values():
        assert answer["text"] == text
        assert answer["finish"] in ENDED
        for count in ("prompt_tokens", "completion_tokens"):
            assert answer[count] in (None, expected["usage"][count])


def test_every_enforced_call_reaches_the_caller_whole(report: Report) -> None:
    for calls in report.get("calls", {}).values():
        [call] = calls
        assert call["id"]
        assert call["name"] == "plan_trip"
        assert is_trip(call["arguments"])


def test_every_object_follows_its_schema(report: Report) -> None:
    assert all(map(is_trip, report.get("objects", {}).values()))


def test_the_result_of_a_call_can_be_given_back(report: Report, expected: dict[str, Any]) -> None:
    if answer := report["others"].get("after a call"):
        assert answer["text"]
        assert answer["prompt_tokens"] > expected["usage"]["prompt_tokens"]


def test_a_refusal_reaches_the_caller_in_our_words(client: str, report: Report) -> None:
    refusal = report["others"]["too long"]
    assert "maximum context length is 8192 tokens" in refusal["message"]
    if client == "litellm":
        assert refusal["type"] == "ContextWindowExceededError"


def test_what_one_client_alone_offers_works(report: Report, expected: dict[str, Any]) -> None:
    others = report["others"]
    if "embedding" in others:
        assert len(others["embedding"]) == EMBEDDING_SIZE
        assert sum(value * value for value in others["embedding"]) == pytest.approx(1, abs=1e-3)
    if "models" in others:
        assert MODEL in others["models"]
    if "count of tokens" in others:
        assert others["count of tokens"] == expected["usage"]["prompt_tokens"]
    if "with tools" in others:
        assert others["with tools"]


def is_trip(value: Any) -> bool:
    return set(value) == {"city", "days"} and value["city"] in ("Rome", "Bern") and type(value["days"]) is int
