"""Tool calls and reasoning in chats: plain, streamed, with OpenAI's own client, and in what the model gets to see."""

import json
import threading
from typing import Any

import msgspec
import pytest

from pagewire.frontend.openai import conversation, parsing
from pagewire.protocol.messages import Error
from tests.fake_engine import FakeEngine, Refuse, Say, Silence, Stop, sampling_of, say, toy_model
from tests.frontend.running import Server, StartServer
from tests.toy_tokenizer import CHATML, IM_START

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
TOOLS = [WEATHER, {"type": "function", "function": {"name": "now"}}]
ROME = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
TEMPLATE = "{% if tools %}{{ tools | tojson }} <tool_call>{% endif %}" + CHATML
THOUGHT = "<think>\nA city, é.\n</think>\n\n"


@pytest.fixture
def engine(engine: FakeEngine) -> FakeEngine:
    """A model whose template shows tools."""
    engine.model = toy_model(chat_templates={"default": TEMPLATE})
    return engine


def prompt_of(engine: FakeEngine) -> str:
    """The text of the last prompt."""
    return bytes(token for token in engine.received[-1].prompt if token < 256).decode()


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose calls have lost their ids; fails if one has none."""
    calls = message.get("tool_calls", [])
    assert all(call.pop("id").startswith("call_") for call in calls)
    return message


def joined(deltas: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a client makes of a stream's deltas, id and name being said once."""
    message: dict[str, Any] = {"role": "", "content": "", "reasoning_content": "", "tool_calls": []}
    for delta in deltas:
        for key in ("role", "content", "reasoning_content"):
            message[key] += delta.get(key, "")
        for call in delta.get("tool_calls", []):
            index = call.pop("index")
            if index == len(message["tool_calls"]):
                assert call.keys() == {"id", "type", "function"}
                message["tool_calls"].append(call)
            else:
                assert call.keys() == {"function"}
                assert call["function"].keys() == {"arguments"}
                message["tool_calls"][index]["function"]["arguments"] += call["function"]["arguments"]
    return message


async def test_calls_are_told_from_text_and_are_the_reason_to_finish(server: Server, engine: FakeEngine) -> None:
    engine.script = say(f"Let me look.\n{ROME}\n{NOW}")
    status, answer = await server.chat(tools=TOOLS)

    [choice] = answer["choices"]
    assert status == 200
    assert choice["finish_reason"] == "tool_calls"
    assert without_ids(choice["message"]) == {
        "role": "assistant",
        "content": "Let me look.",
        "refusal": None,
        "tool_calls": [
            {"type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}},
            {"type": "function", "function": {"name": "now", "arguments": "{}"}},
        ],
    }


async def test_content_is_null_if_there_are_only_calls(server: Server, engine: FakeEngine) -> None:
    engine.script = say(NOW)
    _, answer = await server.chat(tools=TOOLS)
    assert answer["choices"][0]["message"]["content"] is None


async def test_an_answer_without_calls_is_as_if_there_were_no_tools(server: Server) -> None:
    _, answer = await server.chat(tools=TOOLS)
    [choice] = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello there!", "refusal": None}
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "written", [f"Let me look.\n{ROME}\n{NOW} Done.", NOW, "Hello <there>!", f"{THOUGHT}Hm.{ROME}"]
)
async def test_the_joined_stream_equals_the_plain_answer(
    start_server: StartServer, engine: FakeEngine, written: str
) -> None:
    server = await start_server(reasoning_parser="qwen3")
    engine.script = say(written)
    _, answer = await server.chat(tools=TOOLS, n=2)
    stream = await server.stream_chat(tools=TOOLS, n=2, stream_options={"include_usage": True})

    for index, choice in enumerate(answer["choices"]):
        parts = stream.of(index)
        message = without_ids(joined([part["delta"] for part in parts]))
        plain = without_ids(choice["message"])
        assert message["content"] == (plain["content"] or "")
        assert message["reasoning_content"] == plain.get("reasoning_content", "")
        assert message["tool_calls"] == plain.get("tool_calls", [])
        assert [part["finish_reason"] for part in parts if part["finish_reason"]] == [choice["finish_reason"]]
        assert parts[-1]["delta"] == {}
    assert stream.chunks[-1]["usage"] == answer["usage"]


async def test_a_call_that_is_cut_finishes_with_length(server: Server, engine: FakeEngine) -> None:
    engine.script = say(ROME)
    cut = ROME.index("Rome") + 2
    _, answer = await server.chat(tools=TOOLS, max_tokens=cut)
    stream = await server.stream_chat(tools=TOOLS, max_tokens=cut)

    [choice] = answer["choices"]
    assert choice["finish_reason"] == stream.choices[-1]["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city": "Ro'}


async def test_a_call_that_a_stop_string_cuts_is_no_reason_to_finish(server: Server, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say(ROME[: ROME.index("Rome")]), Stop("Rome")]
    _, answer = await server.chat(tools=TOOLS, stop="Rome")
    stream = await server.stream_chat(tools=TOOLS, stop="Rome")
    for choice in (answer["choices"][0], stream.choices[-1]):
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "Rome")


async def test_a_call_without_its_closing_tag_is_one(server: Server, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say(ROME.removesuffix("</tool_call>")), Stop("</tool_call>")]
    _, answer = await server.chat(tools=TOOLS, stop="</tool_call>")
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("written", "reason"), [('{"city": "Rome"}', "tool_calls"), ('{"city": "Rome"', "stop"), ('{"city": "Ro', "stop")]
)
async def test_a_call_is_complete_with_its_arguments_even_if_nothing_marks_its_end(
    start_server: StartServer, engine: FakeEngine, written: str, reason: str
) -> None:
    server = await start_server(tool_call_parser="mistral_args")
    engine.script = lambda request: [Say(f"[TOOL_CALLS]get_weather[ARGS]{written}"), Stop()]
    _, answer = await server.chat(tools=TOOLS)
    assert answer["choices"][0]["finish_reason"] == reason


async def test_every_token_keeps_its_logprob(server: Server, engine: FakeEngine) -> None:
    engine.script = say(f"So: {NOW}")
    _, answer = await server.chat(tools=TOOLS, logprobs=True)
    stream = await server.stream_chat(tools=TOOLS, logprobs=True)

    streamed = [entry for choice in stream.choices if choice["logprobs"] for entry in choice["logprobs"]["content"]]
    assert streamed == answer["choices"][0]["logprobs"]["content"]
    assert len(streamed) == len(f"So: {NOW}")


async def test_one_call_only_if_calls_must_not_be_parallel(server: Server, engine: FakeEngine) -> None:
    engine.script = say(f"{ROME}{NOW}")
    _, answer = await server.chat(tools=TOOLS, parallel_tool_calls=False)
    assert len(answer["choices"][0]["message"]["tool_calls"]) == 1


async def test_nothing_is_generated_after_the_one_call_that_is_allowed(server: Server, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say(f"So. {ROME}{NOW}"), Silence()]
    engine.cached = 3
    fields: dict[str, Any] = {"tools": TOOLS, "parallel_tool_calls": False, "n": 2}
    _, answer = await server.chat(**fields)
    stream = await server.stream_chat(**fields, stream_options={"include_usage": True})

    for choice in answer["choices"]:
        message = joined([part["delta"] for part in stream.of(choice["index"])])
        assert choice["finish_reason"] == stream.of(choice["index"])[-1]["finish_reason"] == "tool_calls"
        assert without_ids(choice["message"])["tool_calls"] == without_ids(message)["tool_calls"]
        assert [call["function"]["name"] for call in message["tool_calls"]] == ["get_weather"]
        assert choice["message"]["content"] == message["content"] == "So."
    generated = len("So. ") + ROME.index("}\n</tool_call>")
    for usage in (answer["usage"], stream.chunks[-1]["usage"]):
        assert usage["completion_tokens"] == 2 * generated
        assert usage["prompt_tokens_details"]["cached_tokens"] == 3
    assert not engine.running


async def test_openais_client_sees_the_same_calls_plain_and_streamed(server: Server, engine: FakeEngine) -> None:
    engine.script = say(f"Let me look. {ROME}{NOW}")
    client = server.client()
    asked: dict[str, Any] = {"model": "toy", "messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS}

    plain = (await client.chat.completions.create(**asked)).choices[0]
    async with client.chat.completions.stream(**asked) as stream:
        events = [event.type async for event in stream]
        streamed = (await stream.get_final_completion()).choices[0]

    assert events.count("tool_calls.function.arguments.done") == 2
    assert streamed.message.content == plain.message.content == "Let me look."
    assert streamed.finish_reason == plain.finish_reason == "tool_calls"
    functions = [[call.function for call in choice.message.tool_calls or []] for choice in (plain, streamed)]
    assert [(f.name, f.arguments) for f in functions[1]] == [(f.name, f.arguments) for f in functions[0]]  # type: ignore[union-attr]
    assert [f.name for f in functions[0]] == ["get_weather", "now"]  # type: ignore[union-attr]
    await client.close()


async def test_tools_and_documents_reach_the_model_as_the_client_wrote_them(server: Server, engine: FakeEngine) -> None:
    await server.chat(tools=TOOLS)
    assert prompt_of(engine).startswith(json.dumps(TOOLS))


async def test_without_a_choice_of_tools_the_model_does_not_see_them(server: Server, engine: FakeEngine) -> None:
    engine.script = say(NOW)
    _, answer = await server.chat(tools=TOOLS, tool_choice="none")
    assert prompt_of(engine).startswith("user")
    assert answer["choices"][0]["message"]["content"] == NOW


async def test_calls_and_results_come_back_as_history(start_server: StartServer, engine: FakeEngine) -> None:
    engine.limits = msgspec.structs.replace(engine.limits, max_model_len=4096)
    server = await start_server(chat_template="name:tool_use")
    engine.script = say(ROME)
    _, answer = await server.chat("Rome?", tools=TOOLS)
    call = answer["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "sun"}

    engine.script = say("Sun.")
    status, _ = await server.chat([{"role": "user", "content": "Rome?"}, call, result], tools=TOOLS)

    assert status == 200
    assert f"assistant\n{ROME}" in prompt_of(engine)
    assert "<tool_response>\nsun\n</tool_response>" in prompt_of(engine)


async def test_tokenize_counts_the_tools(server: Server, engine: FakeEngine) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    _, answer = await server.post("/tokenize", {"messages": messages, "tools": TOOLS})
    await server.chat("Hi", tools=TOOLS)
    assert answer["tokens"] == list(engine.received[-1].prompt)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": []}, "tools"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "nope"}}},
            "tool_choice.function.name",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name"),
    ],
)
async def test_tools_that_make_no_sense_are_refused(server: Server, fields: dict[str, Any], param: str) -> None:
    status, answer = await server.chat(**fields)
    assert (status, answer["error"]["param"]) == (400, param)


async def test_markers_that_are_special_tokens_are_not_hidden(start_server: StartServer, engine: FakeEngine) -> None:
    server = await start_server(reasoning_parser="tags:<|im_start|>,</think>")
    await server.chat()
    assert sampling_of(engine).shown_token_ids == (IM_START,)


async def test_calls_stay_in_the_text_if_the_operator_wants_it(start_server: StartServer, engine: FakeEngine) -> None:
    server = await start_server(tool_call_parser="none")
    engine.script = say(NOW)
    _, answer = await server.chat(tools=TOOLS)
    assert answer["choices"][0]["message"]["content"] == NOW
    status, answer = await server.chat(tools=TOOLS, tool_choice="required")
    assert (status, answer["error"]["code"]) == (400, "unsupported_parameter")


async def test_reasoning_is_apart_from_the_answer_and_counted(start_server: StartServer, engine: FakeEngine) -> None:
    server = await start_server(reasoning_parser="qwen3")
    engine.script = say(f"{THOUGHT}Rome.")
    _, answer = await server.chat()

    message = answer["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"], message["reasoning"]) == ("Rome.", *["A city, é."] * 2)
    counted = len(THOUGHT.rstrip().encode())
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": counted}


async def test_reasoning_that_the_template_opens_or_closes_is_recognised(
    start_server: StartServer, engine: FakeEngine
) -> None:
    thinking = "{{ '<think>\\n' if enable_thinking | default(true) else '<think>\\n\\n</think>\\n\\n' }}"
    server = await start_server(reasoning_parser="auto", chat_template=CHATML + thinking)
    engine.script = say("Hm.</think>Yes.")
    _, open_answer = await server.chat()
    _, closed_answer = await server.chat(chat_template_kwargs={"enable_thinking": False})

    assert open_answer["choices"][0]["message"]["reasoning_content"] == "Hm."
    assert closed_answer["choices"][0]["message"]["content"] == "Hm.</think>Yes."


@pytest.mark.parametrize("way", [{"continue_final_message": True}, {"add_generation_prompt": False}])
async def test_reasoning_that_a_client_lets_the_model_continue_stays_reasoning(
    start_server: StartServer, engine: FakeEngine, way: dict[str, Any]
) -> None:
    server = await start_server(reasoning_parser="qwen3")
    engine.script = lambda request: [Say(" it is Rome.</think>Rome."), Stop()]
    begun = [{"role": "user", "content": "Capital?"}, {"role": "assistant", "content": "<think>I think"}]
    _, answer = await server.chat(begun, **way)
    assert answer["choices"][0]["message"]["reasoning_content"] == "it is Rome."
    _, answer = await server.chat(begun, **way, echo=True)
    stream = await server.stream_chat(begun, **way, echo=True)
    for message in (answer["choices"][0]["message"], joined([choice["delta"] for choice in stream.choices])):
        assert (message["reasoning_content"], message["content"]) == ("I think it is Rome.", "Rome.")


async def test_a_plain_chat_has_no_trace_of_either(server: Server) -> None:
    _, answer = await server.chat()
    assert answer["choices"][0]["message"].keys() == {"role", "content", "refusal"}
    assert "completion_tokens_details" not in answer["usage"]


@pytest.mark.parametrize(
    ("choice", "written", "reason"),
    [
        ("required", f"{ROME}\n{NOW}", "tool_calls"),
        ({"type": "function", "function": {"name": "get_weather"}}, ROME, "stop"),
    ],
)
async def test_calls_that_are_insisted_on_are_enforced_by_a_grammar(
    server: Server, engine: FakeEngine, choice: Any, written: str, reason: str
) -> None:
    engine.script = say(written)
    _, answer = await server.chat(tools=TOOLS, tool_choice=choice)

    grammar = sampling_of(engine).grammar or ""
    assert "get_weather" in grammar
    assert ("now" in grammar) is (choice == "required")
    assert answer["choices"][0]["finish_reason"] == reason
    assert len(answer["choices"][0]["message"]["tool_calls"]) == written.count("<tool_call>")


async def test_a_grammar_binds_after_the_reasoning(start_server: StartServer, engine: FakeEngine) -> None:
    server = await start_server(reasoning_parser="qwen3")
    engine.script = say(f"{THOUGHT}{NOW}")
    _, answer = await server.chat(tools=TOOLS, tool_choice="required")
    assert "thought" in (sampling_of(engine).grammar or "")
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "now"


@pytest.mark.parametrize("written", [ROME, THOUGHT])
async def test_the_beginning_of_a_call_that_is_insisted_on_is_no_text(
    start_server: StartServer, engine: FakeEngine, written: str
) -> None:
    server = await start_server(reasoning_parser="qwen3")
    engine.script = say(written)
    for choice, content in (("required", ""), ("auto", written[:3])):
        _, answer = await server.chat(tools=TOOLS, tool_choice=choice, max_tokens=3)
        stream = await server.stream_chat(tools=TOOLS, tool_choice=choice, max_tokens=3)
        assert answer["choices"][0]["message"]["content"] == stream.text() == content


@pytest.mark.parametrize("fields", [{"allowed_token_ids": [5]}, {"bad_words": ["<"]}])
async def test_calls_that_are_enforced_leave_no_choice_of_tokens(server: Server, fields: dict[str, Any]) -> None:
    strict = [{"type": "function", "function": {**WEATHER["function"], "strict": True}}]
    for tools, choice in ((TOOLS, "required"), (strict, "auto")):
        status, answer = await server.chat(tools=tools, tool_choice=choice, **fields)
        assert (status, answer["error"]["param"]) == (400, next(iter(fields)))
    assert (await server.chat(tools=TOOLS, **fields))[0] == 200


async def test_a_grammar_that_the_engine_refuses_is_named_by_its_field(server: Server, engine: FakeEngine) -> None:
    engine.script = lambda request: [Refuse(Error("invalid", "the grammar cannot be used", param="grammar"))]
    _, answer = await server.chat(tools=TOOLS, tool_choice="required")
    assert answer["error"]["param"] == "tools"
    schema = {"type": "json_schema", "name": "n", "schema": {}}
    _, answer = await server.post("/v1/responses", {"model": "toy", "input": "Hi", "text": {"format": schema}})
    assert answer["error"]["param"] == "text.format"
    body = {"model": "toy", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    _, answer = await server.post("/v1/messages", {**body, "output_config": {"format": schema}})
    assert answer["error"]["message"] == "Invalid value for 'output_config.format': the grammar cannot be used"


async def test_calls_by_the_models_own_choice_need_no_grammar(server: Server, engine: FakeEngine) -> None:
    await server.chat(tools=TOOLS)
    assert sampling_of(engine).grammar is None


async def test_strict_tools_bind_the_arguments_even_of_calls_by_the_models_own_choice(
    server: Server, engine: FakeEngine
) -> None:
    strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    await server.chat(tools=[strict])
    grammar = sampling_of(engine).grammar or ""
    assert "TAIL" in grammar
    assert "city" in grammar


async def test_tools_reach_a_model_whose_template_knows_of_none(start_server: StartServer, engine: FakeEngine) -> None:
    server = await start_server(chat_template=CHATML)
    engine.script = say(NOW)
    _, answer = await server.chat(tools=TOOLS[1:])
    assert f"<tools>\n{json.dumps(TOOLS[1])}\n</tools>" in prompt_of(engine)
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_long_conversation_is_told_of_tools_in_a_thread(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    short = [{"role": "user", "content": "Hi"}]

    def tell(messages: Any, tools: Any) -> Any:
        threads.append(threading.get_ident())
        return short

    monkeypatch.setattr(conversation, "with_tools_in_text", tell)
    server = await start_server(chat_template=CHATML)
    for messages in (short, short * 1000):
        assert (await server.chat(messages, tools=TOOLS))[0] == 200
    assert [thread == threading.get_ident() for thread in threads] == [True, False]


async def test_such_a_model_sees_earlier_calls_even_if_it_may_call_no_more(
    start_server: StartServer, engine: FakeEngine
) -> None:
    server = await start_server(chat_template=CHATML)
    call = {"id": "1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "Now?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "noon"},
    ]
    for fields in ({"tools": TOOLS, "tool_choice": "none"}, {}):
        await server.chat(history, **fields)
        assert "<tools>" not in prompt_of(engine)
        assert '{"name": "now", "arguments": {}}' in prompt_of(engine)
        assert "<tool_response>\nnoon\n</tool_response>" in prompt_of(engine)


@pytest.mark.parametrize(
    ("schema", "place"), [({"type": "no such"}, ".type"), ({"not": {}}, ".not"), ({"$ref": "#/x"}, "")]
)
async def test_a_schema_that_cannot_be_enforced_is_refused_where_it_would_have_to_be(
    server: Server, schema: dict[str, Any], place: str
) -> None:
    tools = [WEATHER, {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": schema}}}}]
    status, answer = await server.chat(tools=tools, tool_choice="required")
    assert status == 400
    assert answer["error"]["param"].startswith(f"tools[1].function.parameters.properties.a{place}")
    assert (await server.chat(tools=tools))[0] == 200


async def test_schemas_that_are_too_long_together_are_refused(start_server: StartServer, engine: FakeEngine) -> None:
    engine.limits = msgspec.structs.replace(engine.limits, max_model_len=1_000_000)
    server = await start_server()
    wide = {"properties": {f"{index:0300}": {} for index in range(500)}}
    tools = [{"type": "function", "function": {"name": name, "parameters": wide}} for name in ("f", "g")]
    status, answer = await server.chat(tools=tools, tool_choice="required")
    assert (status, answer["error"]["param"]) == (400, "tools[1].function.parameters")


async def test_schemas_of_tools_are_checked_in_a_thread(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def enforce(schema: Any) -> Any:
        threads.append(threading.current_thread())
        return schema

    monkeypatch.setattr(parsing, "enforceable_schema", enforce)
    for _ in range(2):
        assert (await server.chat(tools=[WEATHER], tool_choice="required"))[0] == 200
    # Once: what is known of the same tools is remembered.
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
