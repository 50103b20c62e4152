"""``POST /v1/messages`` as a whole, in the shapes that Anthropic's own client expects."""

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
TOOL = {"name": "add", "description": "Sum.", "input_schema": {"type": "object"}}
THINKING = "{# <tool_call> <think></think> {{ tools }} #}" + CHATML
USER = {"role": "user", "content": "Hi"}


def body(messages: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"model": "toy", "max_tokens": 200, "messages": [USER] if messages is None else messages, **fields}


async def created(server: Server, messages: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    status, answer = await server.post("/v1/messages", body(messages, **fields))
    assert status == 200, answer
    assert isinstance(answer, dict)
    return answer


async def stream(server: Server, then: Callable[[], Any] = lambda: None, **fields: Any) -> list[dict[str, Any]]:
    """The events of a streamed message, doing ``then`` at its start; each must be named by its type."""
    async with server.http.post(f"{server.url}/v1/messages", json=body(stream=True, **fields)) as response:
        assert response.status == 200, await response.text()
        raw = await response.content.readany()
        then()
        raw += await response.read()
    events = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        events.append(strict_json(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def accumulated(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the events of a stream add up to, as a client adds them."""
    message: dict[str, Any] = {}
    arguments = ""
    for event in events:
        match event:
            case {"type": "message_start"}:
                message = event["message"]
            case {"type": "content_block_start"}:
                assert event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
                arguments = ""
            case {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": piece}}:
                arguments += piece
            case {"type": "content_block_delta", "delta": delta}:
                field = delta["type"].removesuffix("_delta")
                message["content"][event["index"]][field] += delta[field]
            case {"type": "content_block_stop"} if message["content"][-1]["type"] == "tool_use":
                with_input = {"input": strict_json(arguments)} if arguments.endswith("}") else {}
                message["content"][-1].update(with_input)
            case {"type": "message_delta"}:
                message |= event["delta"] | {"usage": event["usage"]}
    return message


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    content = [{k: v for k, v in block.items() if k != "id"} for block in message["content"]]
    return {**message, "id": "", "content": content}


async def test_a_plain_message_has_the_shape_of_anthropic(server: Server) -> None:
    answer = await created(server, system="Be brief.")
    assert answer.pop("id").startswith("msg_")
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": "toy",
        "content": [{"type": "text", "text": "Hello there!"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 40,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 13,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    }


async def test_a_stream_has_its_events_in_order(server: Server) -> None:
    kinds = [event["type"] for event in await stream(server)]
    assert kinds == [
        "message_start",
        "ping",
        "content_block_start",
        *["content_block_delta"] * kinds.count("content_block_delta"),
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


SAYINGS = ["Hello there!", "", "né 😀\n", f"Let me see.\n{CALL}", CALL + CALL, "<think>\nHm.</think>\nSo.", "<think>Hm"]


@pytest.mark.parametrize("text", SAYINGS)
@pytest.mark.parametrize("limit", [150, 12])
async def test_a_stream_adds_up_to_the_plain_answer(
    engine: FakeEngine, start_server: StartServer, text: str, limit: int
) -> None:
    engine.model = toy_model(chat_templates={"default": THINKING})
    engine.script = say(text)
    engine.cached = 16
    server = await start_server(reasoning_parser="auto")
    fields: dict[str, Any] = {"tools": [TOOL], "max_tokens": limit}
    assert without_ids(accumulated(await stream(server, **fields))) == without_ids(await created(server, **fields))


async def test_calls_and_thoughts_are_blocks_of_their_own(engine: FakeEngine, start_server: StartServer) -> None:
    engine.model = toy_model(chat_templates={"default": THINKING})
    engine.script = say(f"<think>Numbers.</think>Adding.{CALL}")
    server = await start_server(reasoning_parser="auto")
    answer = await created(server, tools=[TOOL], thinking={"type": "enabled", "budget_tokens": 1024})
    thought, said, call = answer["content"]
    assert thought == {"type": "thinking", "thinking": "Numbers.", "signature": ""}
    assert said == {"type": "text", "text": "Adding."}
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "add", {"a": 1, "b": 2})
    assert answer["stop_reason"] == "tool_use"


async def test_why_it_ended(server: Server, engine: FakeEngine) -> None:
    assert (await created(server, max_tokens=5))["stop_reason"] == "max_tokens"
    engine.script = lambda request: [Say("x"), Stop("END")]
    answer = await created(server, stop_sequences=["END"])
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "END")
    engine.script = say("x" * 600)
    answer = await created(server, max_tokens=32_000)
    assert answer["stop_reason"] == "model_context_window_exceeded"
    assert answer["usage"]["input_tokens"] + answer["usage"]["output_tokens"] == 512


async def test_cached_tokens_are_part_of_the_prompt(server: Server, engine: FakeEngine) -> None:
    engine.cached = 16
    usage = (await created(server))["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (5, 16)


async def test_blocks_become_messages(engine: FakeEngine, start_server: StartServer) -> None:
    template = "{% for m in messages %}{{ m | tojson }}\n{% endfor %}"
    engine.model = toy_model(chat_templates={"default": template})
    server = await start_server()
    await created(
        server,
        [
            {"role": "user", "content": [{"type": "text", "text": "1+2?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": ""},
                    {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "no"}]}
                    | {"is_error": True},
                    {"type": "text", "text": "Again."},
                ],
            },
        ],
        system=[{"type": "text", "text": "Be brief."}],
    )
    system, user, assistant, tool, again = map(strict_json, prompt_text(engine.received[0]).splitlines())
    assert system == {"role": "system", "content": "Be brief."}
    assert user == {"role": "user", "content": "1+2?"}
    assert assistant["reasoning_content"] == "Hm."
    [call] = assistant["tool_calls"]
    assert call == {"id": "t1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    assert tool == {"role": "tool", "tool_call_id": "t1", "content": "Error: no"}
    assert again == {"role": "user", "content": "Again."}


async def test_messages_in_a_row_of_one_role_are_one_turn(server: Server, engine: FakeEngine) -> None:
    await created(server, [USER, USER, {"role": "assistant", "content": "Well"}, USER])
    assert prompt_text(engine.received[0]).count("<|im_start|>user") == 2


async def test_a_last_message_of_the_assistant_is_continued(server: Server, engine: FakeEngine) -> None:
    await created(server, [USER, {"role": "assistant", "content": "Well, "}])
    assert prompt_text(engine.received[0]).endswith("<|im_start|>assistant\nWell, ")


async def test_sampling_fields_reach_the_engine(server: Server, engine: FakeEngine) -> None:
    await created(server, temperature=0.25, top_p=0.5, top_k=7, stop_sequences=["a", "b"])
    sampling = sampling_of(engine)
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.25, 0.5, 7)
    assert (sampling.max_tokens, sampling.stop) == (200, ("a", "b"))


async def test_a_format_binds_the_answer(server: Server, engine: FakeEngine) -> None:
    await created(server, output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}})
    assert sampling_of(engine).grammar


async def test_a_message_ends_with_its_one_call_if_tools_must_not_be_used_in_parallel(
    engine: FakeEngine, start_server: StartServer
) -> None:
    engine.model = toy_model(chat_templates={"default": THINKING})
    engine.script = lambda request: [Say(f"{CALL}{CALL}"), Silence()]
    server = await start_server()
    fields: dict[str, Any] = {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    answer = await created(server, **fields)
    assert without_ids(accumulated(await stream(server, **fields))) == without_ids(answer)
    assert ([block["type"] for block in answer["content"]], answer["stop_reason"]) == (["tool_use"], "tool_use")
    assert answer["usage"]["output_tokens"] <= len(CALL)


async def test_a_call_that_is_cut_is_no_reason_to_use_a_tool(engine: FakeEngine, start_server: StartServer) -> None:
    engine.model = toy_model(chat_templates={"default": THINKING})
    server = await start_server()
    for ending, why in ((Stop("END"), ("stop_sequence", "END")), (Stop(), ("end_turn", None))):
        engine.script = lambda request, ending=ending: [Say(CALL[: CALL.index("2")]), ending]
        answer = await created(server, tools=[TOOL], stop_sequences=["END"])
        assert (answer["stop_reason"], answer["stop_sequence"]) == why


async def test_a_schema_that_cannot_be_enforced_is_named_as_the_client_wrote_it(
    engine: FakeEngine, start_server: StartServer
) -> None:
    engine.model = toy_model(chat_templates={"default": THINKING})
    server = await start_server()
    fields = {"tools": [{**TOOL, "input_schema": {"not": {}}}], "tool_choice": {"type": "any"}}
    status, answer = await server.post("/v1/messages", body(**fields))
    assert (status, "tools[0].input_schema.not" in answer["error"]["message"]) == (400, True)


async def test_any_and_tool_force_a_call(engine: FakeEngine, start_server: StartServer) -> None:
    engine.model = toy_model(chat_templates={"default": THINKING})
    engine.script = say(CALL)
    server = await start_server()
    for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "add"}):
        engine.received.clear()
        answer = await created(server, tools=[TOOL], tool_choice=choice)
        assert sampling_of(engine).grammar
        assert answer["stop_reason"] == "tool_use"


async def test_count_tokens_counts_the_prompt_of_the_same_message(server: Server) -> None:
    fields = {"system": "Be brief.", "tools": [TOOL]}
    usage = (await created(server, **fields))["usage"]
    counted = await server.post("/v1/messages/count_tokens", {"model": "toy", "messages": [USER], **fields})
    assert counted == (200, {"input_tokens": usage["input_tokens"]})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user"}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages.0.content.0"),
    ({"messages": [{"role": "assistant", "content": [{"type": "redacted_thinking"}]}]}, "messages.0.content.0"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages.0.content.0.tool_use_id"),
    ({"temperature": 1.5}, "temperature"),
    ({"stop_sequences": [""]}, "stop_sequences[0]"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools.0"),
    ({"tools": [{"name": "f"}]}, "tools.0.input_schema"),
    ({"tools": [{"name": "no spaces", "input_schema": {}}]}, "tools[0].name"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "sub"}}, "tool_choice.name"),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": {"properties": {"response_format": 5}}}}},
        "'output_config.format.schema.properties.response_format'",
    ),
    ({"mcp_servers": [{}]}, "mcp_servers"),
]


@pytest.mark.parametrize(("fields", "named"), REFUSED)
async def test_what_is_not_supported_is_refused_by_name(server: Server, fields: dict[str, Any], named: str) -> None:
    status, answer = await server.post("/v1/messages", {**body(), **fields})
    assert (status, answer["type"], answer["error"]["type"]) == (400, "error", "invalid_request_error")
    assert named in answer["error"]["message"]


async def test_errors_have_anthropics_shape_on_these_routes_only(start_server: StartServer) -> None:
    server = await start_server(api_key=("secret",))
    status, answer = await server.post("/v1/messages", body())
    assert (status, answer["error"]["type"]) == (401, "authentication_error")
    assert answer["request_id"]
    status, answer = await server.post("/v1/messages", {**body(), "model": "other"}, **{"x-api-key": "secret"})
    assert (status, answer["error"]["type"]) == (404, "not_found_error")
    status, answer = await server.get("/v1/messages", **{"x-api-key": "secret"})
    assert (status, answer["error"]["type"]) == (405, "invalid_request_error")
    status, answer = await server.chat()
    assert (status, answer["error"]["code"]) == (401, "invalid_api_key")


async def test_either_header_carries_the_key(start_server: StartServer) -> None:
    server = await start_server(api_key=("secret",))
    for headers in ({"x-api-key": "secret"}, {"Authorization": "Bearer secret"}):
        async with server.http.post(f"{server.url}/v1/messages", json=body(), headers=headers) as response:
            assert response.status == 200
            assert response.headers["request-id"] == response.headers["X-Request-Id"]
    assert (await server.post("/v1/messages", body(), **{"x-api-key": "wrong"}))[0] == 401


async def test_a_failure_in_a_stream_is_an_error_event(server: Server, engine: FakeEngine) -> None:
    begun = asyncio.Event()
    engine.script = lambda request: [Say("Hel"), Wait(begun), Refuse(Error("internal", "the engine broke"))]
    last = (await stream(server, then=begun.set))[-1]
    assert (last["type"], last["error"]) == ("error", {"type": "api_error", "message": "the engine broke"})


async def test_what_has_no_effect_is_named(server: Server) -> None:
    marked = [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]}]
    sent = body(marked, metadata={"user_id": "me"}, tools=[{**TOOL, "cache_control": {"type": "ephemeral"}}])
    async with server.http.post(f"{server.url}/v1/messages", json=sent) as response:
        assert response.headers["X-Ignored-Params"] == "metadata, tools.cache_control, cache_control"


async def test_our_own_faults_have_anthropics_shape_too(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(name: str | None) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(server.frontend.catalog, "find", broken)
    status, answer = await server.post("/v1/messages", body())
    assert (status, answer["error"]["type"]) == (500, "api_error")
    assert "a fault" not in answer["error"]["message"]
