"""What counts as output, in the shapes that servers stream."""

import msgspec
import pytest
from aiohttp import web

from pagewire.bench.client import Client, Record, RequestFailed, RequestSettings, Target, discover_model


async def answer_with(*events: object, endpoint: str = "chat", done: bool = True) -> Record:
    """Send one request to a server that streams these events."""
    body = b"".join(b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events)

    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=body + (b"data: [DONE]\n\n" if done else b""), content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        target = Target("x", f"http://127.0.0.1:{runner.addresses[0][1]}", "m")
        record = Record(0, 0, 4, planned=0.0)
        async with Client(target, RequestSettings(endpoint="chat" if endpoint == "chat" else "completions")) as client:
            await client.send("hello", record)
        return record
    finally:
        await runner.cleanup()


def chat(delta: dict[str, object], finish: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def text(content: str, finish: str | None = None) -> dict[str, object]:
    return {"choices": [{"index": 0, "text": content, "finish_reason": finish}]}


async def test_the_role_and_the_finish_of_a_chat_are_no_tokens() -> None:
    record = await answer_with(chat({"role": "assistant", "content": ""}), chat({"content": "a"}), chat({}, "stop"))
    assert (len(record.token_times), record.text, record.finish_reason) == (1, "a", "stop")


async def test_a_token_without_text_counts_as_it_arrived() -> None:
    record = await answer_with(text(""), text("é"), text("", "length"), endpoint="completions")
    assert (len(record.token_times), record.text) == (2, "é")


async def test_the_last_token_may_come_with_the_finish() -> None:
    record = await answer_with(text("a"), text("b", "length"), endpoint="completions")
    assert len(record.token_times) == 2


async def test_reasoning_and_tool_calls_are_output_but_no_history() -> None:
    call = [{"index": 0, "function": {"arguments": "{}"}}]
    record = await answer_with(chat({"reasoning_content": "hm"}), chat({"tool_calls": call}), chat({"content": "so"}))
    assert (len(record.token_times), record.text) == (3, "so")


async def test_usage_is_taken_from_an_event_without_choices() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}
    record = await answer_with(chat({"content": "a"}, "stop"), {"choices": None, "usage": usage})
    assert (record.prompt_tokens, record.output_tokens, record.cached_tokens) == (9, 7, 4)


async def test_a_stream_without_an_end_is_an_error() -> None:
    assert (await answer_with(chat({"content": "a"}), done=False)).error == "stream cut"
    assert (await answer_with(chat({"content": "a"}, "stop"), done=False)).error is None


async def test_what_is_no_answer_is_an_error() -> None:
    assert (await answer_with(["no"])).error == "bad answer"


async def test_a_server_without_models_is_refused_in_words() -> None:
    with pytest.raises(RequestFailed, match="v1/models"):
        await discover_model("http://127.0.0.1:1", RequestSettings())
