"""Clients that people use, each by all the ways it has of asking, against the real programs with the demo model.

What the answer must be is known from a request without any client. Calls and objects are enforced, so that even this
small model gives the right ones.
"""

import asyncio
import contextlib
import json
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest

from tests.clients.driving import Report, command_of, command_on_node, drive
from tests.clients.environments import DRIVERS
from tests.e2e.programs import Deployment, Frontend
from tests.fake_engine import FakeEngine, Silence, toy_model

pytestmark = pytest.mark.clients

MODEL = "smollm2-135m-instruct"
EMBEDDING_SIZE = 576
# Of LiteLLM, for such a server.
PROVIDERS = ("openai", "hosted_vllm", "anthropic")
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
# What can go wrong: the status, and the exception that OpenAI's client and those made of it raise.
FAILURES = {
    "no key": (401, "AuthenticationError"),
    "no model": (404, "NotFoundError"),
    "too long": (400, "BadRequestError"),
    "too large": (413, "APIError"),
    "busy": (429, "RateLimitError"),
    "no engine": (503, "InternalServerError"),
}
# Where a client knows it better.
NAMED_FAILURES = {
    "anthropic": {"too large": "ContentTooLargeError", "no engine": "ServiceUnavailableError"},
    "langchain": {"too long": "ContextOverflowError"},
    "litellm": {
        **dict.fromkeys([f"{provider} too long" for provider in PROVIDERS], "ContextWindowExceededError"),
        "openai no engine": "ServiceUnavailableError",
        "hosted_vllm no engine": "ServiceUnavailableError",
    },
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
            "errors": set(FAILURES),
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
        errors=set(FAILURES),
    ),
    "langchain": python_client(
        "langchain",
        answers={"invoke", "stream", "invoke responses", "stream responses"},
        calls={"invoke", "stream"},
        objects={"json_schema", "function_calling"},
        others={"after a call", "too long"},
        errors=set(FAILURES),
    ),
    "litellm": python_client(
        "litellm",
        answers={"openai plain", "openai stream", "hosted_vllm plain", "hosted_vllm stream"},
        calls={"openai plain", "openai stream", "hosted_vllm plain", "hosted_vllm stream"},
        objects={"openai", "hosted_vllm"},
        others={"after a call", "too long"},
        errors={f"{provider} {failure}" for provider in PROVIDERS for failure in FAILURES},
    ),
    "llm": python_client(
        "llm",
        answers={"plain", "stream", "command line"},
        objects={"plain", "stream"},
        others={"with tools", "too long"},
    ),
}


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    with Deployment.running() as deployment:
        deployment.start_engine("demo", "--num-kv-blocks", "1024")
        yield deployment


@pytest.fixture(scope="module")
def frontend(deployment: Deployment) -> Frontend:
    frontend = deployment.start_frontend()
    frontend.wait_until_ready()
    return frontend


@pytest.fixture(scope="module")
def failing(deployment: Deployment, frontend: Frontend) -> Iterator[dict[str, Any]]:
    """For each failure a request that runs into it: at which server, of which model, with which content."""
    small = deployment.start_frontend("--max-body-size", "1k")
    small.wait_until_ready()
    nobody, silent = (f"ipc://{deployment.directory}/{name}" for name in ("nobody", "silent"))

    def request(of: Frontend, model: str = MODEL, content: str = "Hi") -> dict[str, str]:
        return {"base_url": f"{of.url}/v1", "model": model, "content": content}

    with silent_engine(silent):
        busy = deployment.start_frontend("--max-inflight", "1", engine=silent)
        busy.wait_until_ready()
        with request_without_end(busy):
            yield {
                "no key": request(deployment.start_frontend("--api-key", "secret")),
                "no model": request(frontend, model="nobody"),
                "too long": request(frontend, content=TASK["too_long"]),
                "too large": request(small, content="word " * 1000),
                "busy": request(busy),
                "no engine": request(deployment.start_frontend(engine=nobody)),
            }


@contextlib.contextmanager
def silent_engine(address: str) -> Iterator[None]:
    """An engine that accepts every request and never says a word."""
    engine = FakeEngine(address, script=lambda request: [Silence()], model=toy_model(name=MODEL))

    async def serve() -> None:
        async with engine.serving():
            started.set_result(asyncio.get_running_loop())
            await stopped.wait()

    started: Future[asyncio.AbstractEventLoop] = Future()
    stopped = asyncio.Event()
    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    loop = started.result()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()


@contextlib.contextmanager
def request_without_end(frontend: Frontend) -> Iterator[None]:
    with frontend.client() as client, client.completions.create(model=MODEL, prompt="Hi", stream=True):
        yield


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
def report(client: str, frontend: Frontend, failing: dict[str, Any]) -> Report:
    return drive(CLIENTS[client].command(), {**TASK, "base_url": f"{frontend.url}/v1", "failing": failing})


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


def test_every_failure_is_the_exception_that_the_client_has_for_it(client: str, report: Report) -> None:
    for way, error in report.get("errors", {}).items():
        status, usual = next(known for failure, known in FAILURES.items() if way.endswith(failure))
        assert NAMED_FAILURES.get(client, {}).get(way, usual) in error["classes"], way
        # LiteLLM has statuses of its own.
        assert client == "litellm" or error["status"] == status, way


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
