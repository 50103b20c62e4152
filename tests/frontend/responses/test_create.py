"""``POST /v1/responses`` as a whole, against an engine that says what a test tells it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pagewire.protocol.messages import Error
from tests.fake_engine import FakeEngine, Refuse, Say, Silence, Stop, Wait, sampling_of, say, toy_model
from tests.frontend.running import Server, StartServer, strict_json
from tests.frontend.test_chat import prompt_text
from tests.toy_tokenizer import CHATML

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
THINKING = "{# <tool_call> <think></think> #}" + CHATML
CHATTY_ITEMS = [
    {"role": "user", "content": "a" * 60},
    {"role": "assistant", "content": "b" * 60},
    {"role": "user", "content": "c" * 60},
]


async def create(server: Server, given: Any = "Hi", **fields: Any) -> tuple[int, Any]:
    return await server.post("/v1/responses", {"model": "toy", "input": given, **fields})


async def created(server: Server, given: Any = "Hi", **fields: Any) -> dict[str, Any]:
    status, answer = await create(server, given, **fields)
    assert status == 200, answer
    assert isinstance(answer, dict)
    return answer


async def stream(
    server: Server, given: Any = "Hi", then: Callable[[], Any] = lambda: None, **fields: Any
) -> list[dict[str, Any]]:
    """The events of a streamed response, doing ``then`` at its start; each must be named by its type and numbered."""
    body = {"model": "toy", "input": given, "stream": True, **fields}
    async with server.http.post(f"{server.url}/v1/responses", json=body) as response:
        assert response.status == 200, await response.text()
        raw = await response.content.readany()
        then()
        raw += await response.read()
        blocks = raw.decode().removesuffix("\n\n").split("\n\n")
    events = []
    for number, block in enumerate(blocks):
        name, data = block.split("\n")
        event = strict_json(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number
        events.append(event)
    return events


def without_ids(value: Any) -> Any:
    """A response without what differs between two that say the same."""
    if isinstance(value, list):
        return [without_ids(entry) for entry in value]
    if isinstance(value, dict):
        return {k: without_ids(v) for k, v in value.items() if k not in ("id", "call_id", "created_at", "completed_at")}
    return value


def joined(events: list[dict[str, Any]], kind: str) -> str:
    return "".join(event["delta"] for event in events if event["type"] == kind)


async def test_a_plain_response_has_the_shape_of_openai(server: Server) -> None:
    answer = await created(server, instructions="Be brief.", metadata={"k": "v"}, temperature=0.5)
    assert answer["id"].startswith("resp_")
    [item] = answer["output"]
    assert item["id"].startswith("msg_")
    assert without_ids(answer) == {
        "object": "response",
        "status": "completed",
        "model": "toy",
        "output": [
            {
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hello there!", "annotations": [], "logprobs": []}],
            }
        ],
        "usage": {
            "input_tokens": 40,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 13,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 53,
        },
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": "Be brief.",
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {"k": "v"},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": 0.5,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
    }


async def test_a_stream_tells_the_story_of_its_items_in_order(server: Server) -> None:
    events = await stream(server)
    kinds = [event["type"] for event in events]
    deltas = kinds.count("response.output_text.delta")
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * deltas,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert joined(events, "response.output_text.delta") == "Hello there!"


SAYINGS = [
    "Hello there!",
    "",
    "né 😀\n",
    f"Let me see.\n{CALL}",
    CALL + CALL,
    "<think>\nHm.\n</think>\n\nSo.",
    "<think>Hm",
]


@pytest.mark.parametrize("text", SAYINGS)
@pytest.mark.parametrize("limit", [150, 12])
async def test_a_stream_ends_with_what_the_plain_answer_is(
    engine: FakeEngine, start_server: StartServer, text: str, limit: int
) -> None:
    engine.model = toy_model(chat_templates={"default": THINKING})
    engine.script = say(text)
    server = await start_server(reasoning_parser="auto")
    fields: dict[str, Any] = {"tools": [TOOL], "max_output_tokens": limit, "seed": 1, "store": False}
    plain = await created(server, **fields)
    events = await stream(server, **fields)
    assert without_ids(events[-1]["response"]) == without_ids(plain)
    assert events[-1]["type"] == f"response.{plain['status']}"
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]
    texts = [part["text"] for item in done if item["type"] == "message" for part in item["content"]]
    assert joined(events, "response.output_text.delta") == "".join(texts)
    arguments = [item["arguments"] for item in done if item["type"] == "function_call"]
    assert joined(events, "response.function_call_arguments.delta") == "".join(arguments)


async def test_reaching_max_output_tokens_is_incomplete(server: Server) -> None:
    answer = await created(server, max_output_tokens=5)
    assert answer["status"] == answer["output"][0]["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["output"][0]["content"][0]["text"] == "Hello"


async def test_calls_and_reasoning_are_items_of_their_own(engine: FakeEngine, start_server: StartServer) -> None:
    engine.model = toy_model(chat_templates={"default": THINKING})
    engine.script = say(f"<think>Numbers.</think>Adding.{CALL}")
    server = await start_server(reasoning_parser="auto")
    answer = await created(server, tools=[TOOL], tool_choice="auto")
    thought, said, call = answer["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Numbers."}]
    assert said["content"][0]["text"] == "Adding."
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "add", '{"a": 1, "b": 2}')
    assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    assert answer["tools"] == [TOOL]


async def test_a_call_that_is_cut_is_incomplete(engine: FakeEngine, start_server: StartServer) -> None:
    engine.model = toy_model(chat_templates={"default": THINKING})
    engine.script = lambda request: [Say(CALL[: CALL.index("2")]), Stop()]
    server = await start_server()
    answer = await created(server, tools=[TOOL])
    assert (answer["status"], answer["output"][0]["status"]) == ("completed", "incomplete")


async def test_a_schema_that_cannot_be_enforced_is_named_as_the_client_wrote_it(
    engine: FakeEngine, start_server: StartServer
) -> None:
    engine.model = toy_model(chat_templates={"default": THINKING})
    server = await start_server()
    fields = {"tools": [{**TOOL, "parameters": {"not": {}}}], "tool_choice": "required"}
    status, answer = await server.post("/v1/responses", {"model": "toy", "input": "Hi", **fields})
    assert (status, answer["error"]["param"]) == (400, "tools[0].parameters.not")


async def test_a_response_ends_with_its_one_call_if_calls_must_not_be_parallel(
    engine: FakeEngine, start_server: StartServer
) -> None:
    engine.model = toy_model(chat_templates={"default": THINKING})
    engine.script = lambda request: [Say(f"{CALL}{CALL}"), Silence()]
    server = await start_server()
    fields: dict[str, Any] = {"tools": [TOOL], "parallel_tool_calls": False, "seed": 1, "store": False}
    answer = await created(server, **fields)
    events = await stream(server, **fields)
    assert without_ids(events[-1]["response"]) == without_ids(answer)
    assert ([item["type"] for item in answer["output"]], answer["status"]) == (["function_call"], "completed")
    assert answer["usage"]["output_tokens"] <= len(CALL)


async def test_a_call_and_its_result_go_back_into_the_prompt(engine: FakeEngine, start_server: StartServer) -> None:
    template = "{% for m in messages %}{{ m | tojson }}\n{% endfor %}"
    engine.model = toy_model(chat_templates={"default": template})
    server = await start_server()
    await created(
        server,
        [
            {"role": "user", "content": [{"type": "input_text", "text": "1+2?"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "3"},
        ],
    )
    user, assistant, tool = prompt_text(engine.received[0]).splitlines()
    assert strict_json(user) == {"role": "user", "content": "1+2?"}
    call = strict_json(assistant)["tool_calls"][0]
    assert call == {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    assert strict_json(assistant)["reasoning_content"] == "Hm."
    assert strict_json(tool) == {"role": "tool", "tool_call_id": "c1", "content": "3"}


async def test_a_response_continues_the_one_before(server: Server, engine: FakeEngine) -> None:
    first = await created(server, "One", instructions="Not carried over.")
    second = await created(server, "Two", previous_response_id=first["id"])
    third = await created(server, "Three", previous_response_id=second["id"])
    assert third["previous_response_id"] == second["id"]
    said = prompt_text(engine.received[-1])
    assert said == (
        "<|im_start|>user\nOne<|im_end|>\n<|im_start|>assistant\nHello there!<|im_end|>\n"
        "<|im_start|>user\nTwo<|im_end|>\n<|im_start|>assistant\nHello there!<|im_end|>\n"
        "<|im_start|>user\nThree<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_unstored_responses_cannot_be_continued(server: Server) -> None:
    first = await created(server, store=False)
    status, answer = await create(server, previous_response_id=first["id"])
    assert (status, answer["error"]["code"]) == (400, "previous_response_not_found")
    assert answer["error"]["param"] == "previous_response_id"


async def test_truncation_drops_the_oldest_turns_but_not_the_instructions(server: Server, engine: FakeEngine) -> None:
    items = CHATTY_ITEMS * 3
    status, answer = await create(server, items, instructions="Stay.")
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "context_length_exceeded", "input")
    await created(server, items, instructions="Stay.", truncation="auto", max_output_tokens=20)
    prompt = prompt_text(engine.received[0])
    assert prompt.startswith("<|im_start|>system\nStay.<|im_end|>\n<|im_start|>user\n")
    assert prompt.count("<|im_start|>") > 2
    assert len(engine.received[0].prompt) + 20 <= 512


async def test_truncation_has_an_end(server: Server) -> None:
    status, answer = await create(server, [*CHATTY_ITEMS, {"role": "user", "content": "d" * 600}], truncation="auto")
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")


async def test_logprobs_come_with_the_text(server: Server) -> None:
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "seed": 3}
    plain = await created(server, **fields)
    entries = plain["output"][0]["content"][0]["logprobs"]
    assert "".join(entry["token"] for entry in entries) == "Hello there!"
    assert {len(entry["top_logprobs"]) for entry in entries} == {2}
    events = await stream(server, **fields)
    streamed = [e for event in events if event["type"].endswith("text.delta") for e in event["logprobs"]]
    assert streamed == entries


async def test_sampling_fields_reach_the_engine(server: Server, engine: FakeEngine) -> None:
    await created(server, temperature=0.25, top_p=0.5, top_k=7, max_output_tokens=9, seed=4)
    sampling = sampling_of(engine)
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.25, 0.5, 7)
    assert (sampling.max_tokens, sampling.seed) == (9, 4)


async def test_a_failure_in_a_stream_is_a_failed_response(server: Server, engine: FakeEngine) -> None:
    begun = asyncio.Event()
    engine.script = lambda request: [Say("Hel"), Wait(begun), Refuse(Error("internal", "the engine broke"))]
    events = await stream(server, then=begun.set)
    assert events[-1]["type"] == "response.failed"
    failed = events[-1]["response"]
    assert failed["status"] == "failed"
    assert failed["error"] == {"code": "server_error", "message": "the engine broke"}
    assert failed["output"][0]["content"][0]["text"] == "Hel"
    status, _ = await server.get(f"/v1/responses/{failed['id']}")
    assert status == 404


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"input": []}, "input"),
    ({"input": 5}, "input"),
    ({"input": [7]}, "input[0]"),
    ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0]"),
    ({"input": [{"type": "web_search_call"}]}, "input[0].type"),
    ({"input": [{"type": "function_call", "name": "f", "arguments": ""}]}, "input[0].call_id"),
    ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input[0].encrypted_content"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "name": "no spaces"}]}, "tools[0].name"),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "sub"}}, "tool_choice.name"),
    ({"background": True}, "background"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"messages": [{"role": "user", "content": "Hi"}]}, "messages"),
    ({"max_tokens": 5}, "max_tokens"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"n": 2}, "n"),
    ({"include": ["everything"]}, "include[0]"),
    ({"truncation": "maybe"}, "truncation"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
    ({"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": 5}}}}, "text.format.schema.type"),
    (
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"properties": {"response_format": 5}}}}},
        "text.format.schema.properties.response_format",
    ),
    ({"metadata": {"k": 5}}, "metadata"),
    ({"temperature": 3}, "temperature"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
async def test_what_is_not_supported_is_refused_by_name(server: Server, fields: dict[str, Any], param: str) -> None:
    status, answer = await server.post("/v1/responses", {"model": "toy", "input": "Hi", **fields})
    assert (status, answer["error"]["param"]) == (400, param)


async def test_what_has_no_effect_is_named_or_refused(start_server: StartServer) -> None:
    fields: dict[str, Any] = {"user": "me", "text": {"verbosity": "low"}, "reasoning": {"summary": "auto"}}
    fields["tools"] = [{**TOOL, "defer_loading": True}]
    server = await start_server()
    body = {"model": "toy", "input": "Hi", **fields}
    async with server.http.post(f"{server.url}/v1/responses", json=body) as response:
        assert response.headers["X-Ignored-Params"] == "user, text.verbosity, reasoning.summary, tools.defer_loading"
    strict = await start_server(with_engine=False, strict_params=True)
    status, answer = await create(strict, text={"verbosity": "low"})
    assert (status, answer["error"]["param"]) == (400, "text.verbosity")


@pytest.mark.parametrize(
    "text_format",
    [{"type": "json_object"}, {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}],
)
async def test_a_format_binds_the_answer(server: Server, engine: FakeEngine, text_format: dict[str, Any]) -> None:
    answer = await created(server, text={"format": text_format})
    assert answer["text"]["format"] == text_format
    assert sampling_of(engine).grammar


async def test_a_stop_of_the_model_is_completed(server: Server, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say("x"), Stop("END")]
    assert (await created(server, stop=["END"]))["status"] == "completed"
