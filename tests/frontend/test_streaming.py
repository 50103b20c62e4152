"""Streams as such: framing, when they start, how they fail, who may leave, how pieces are grouped."""

import asyncio
from typing import Any

import aiohttp
import pytest

from pagewire.protocol.messages import Error
from tests.fake_engine import FakeEngine, Refuse, Say, Silence, Stop, Wait, until
from tests.frontend.running import Server, StartServer, chat_body, strict_json

CHAT = "/v1/chat/completions"
STREAM = chat_body("Hi", stream=True)


async def test_headers_of_a_stream(server: Server) -> None:
    async with server.http.post(server.url + CHAT, json=STREAM) as response:
        assert response.content_type == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-cache"
        assert response.headers["X-Accel-Buffering"] == "no"
        assert response.headers["X-Request-Id"]


async def test_tokens_are_sent_as_they_come(server: Server, engine: FakeEngine) -> None:
    go_on = asyncio.Event()
    engine.script = lambda request: [Say("1"), Wait(go_on), Say("2"), Stop()]
    stream = await server.stream(CHAT, STREAM, after=b'"content":"1"', then=go_on.set)
    assert stream.done
    assert stream.text() == "12"


async def test_choices_interleave_as_they_come(server: Server, engine: FakeEngine) -> None:
    second_done = asyncio.Event()

    def script(request: Any) -> Any:
        return [Wait(second_done), Say("first"), Stop()] if request.sampling.seed == 0 else [Say("second"), Stop()]

    engine.script = script
    body = {**STREAM, "n": 2, "seed": 0}
    stream = await server.stream(CHAT, body, after=b'"finish_reason":"stop"', then=second_done.set)
    assert [choice["index"] for choice in stream.choices if choice["finish_reason"]] == [1, 0]


@pytest.mark.parametrize(
    ("code", "status"),
    [("invalid", 400), ("context_length_exceeded", 400), ("overloaded", 429), ("draining", 503), ("internal", 500)],
)
@pytest.mark.parametrize("n", [1, 2])
async def test_a_refusal_is_a_status_not_a_stream(
    server: Server, engine: FakeEngine, code: Any, status: int, n: int
) -> None:
    engine.script = lambda request: [Refuse(Error(code, "no"))] if request.sampling.seed else [Silence()]
    body = {**STREAM, "n": n, "seed": 2 - n}
    async with server.http.post(server.url + CHAT, json=body) as response:
        assert response.status == status
        assert response.content_type == "application/json"
        assert (await response.json())["error"]["message"] == "no"
        assert ("Retry-After" in response.headers) == (status in (429, 503))


@pytest.mark.parametrize("n", [1, 3])
async def test_a_failure_after_the_start_is_an_error_event_without_end_mark(
    server: Server, engine: FakeEngine, n: int
) -> None:
    go_on = asyncio.Event()
    engine.script = lambda request: [Say("x"), Wait(go_on), Refuse(Error("internal", "a step failed"))]
    stream = await server.stream(CHAT, {**STREAM, "n": n}, after=b'"content":"x"', then=go_on.set)
    assert not stream.done
    assert stream.text() == "x"
    assert stream.chunks[-1] == {
        "error": {"message": "a step failed", "type": "server_error", "param": None, "code": None}
    }


async def test_a_failure_of_a_plain_request_is_a_status(server: Server, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say("so far"), Refuse(Error("internal", "a step failed"))]
    status, answer = await server.chat()
    assert status == 500
    assert answer["error"]["message"] == "a step failed"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_aborts_all_its_choices(server: Server, engine: FakeEngine, stream: bool) -> None:
    engine.script = lambda request: [Say("x"), Silence()]
    request = asyncio.create_task(server.chat(n=3, stream=stream))
    await until(lambda: len(engine.received) == 3)
    request.cancel()
    await until(lambda: sorted(engine.aborted) == [0, 1, 2])
    await until(lambda: server.frontend.inflight == 0)


async def test_finished_requests_are_not_aborted(server: Server, engine: FakeEngine) -> None:
    await server.chat(n=2)
    await server.stream_chat(n=2)
    assert engine.aborted == []


async def test_a_lost_engine_ends_requests_at_once(start_server: StartServer, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say("x"), Silence()]
    server = await start_server(with_engine=False)
    async with engine.serving():
        await until(lambda: server.frontend.not_ready() is None)
        plain = asyncio.create_task(server.chat())
        stream = asyncio.create_task(server.stream_chat())
        await until(lambda: len(engine.received) == 2 and server.streams_open() == 1)
    status, answer = await plain
    assert status == 503
    assert answer["error"]["type"] == "server_error"
    streamed = await stream
    assert not streamed.done
    assert "error" in streamed.chunks[-1]
    assert (await server.get("/ready"))[0] == 503
    assert (await server.get("/health"))[0] == 200


async def test_waiting_streams_get_comments_until_the_first_token(
    start_server: StartServer, engine: FakeEngine
) -> None:
    go_on = asyncio.Event()
    engine.script = lambda request: [Wait(go_on), Say("x"), Stop()]
    server = await start_server(sse_keep_alive_interval=0.02)
    stream = await server.stream(CHAT, STREAM, after=b": keep-alive", then=go_on.set)
    assert stream.comments
    assert stream.text() == "x"
    assert stream.done


async def test_pieces_are_grouped_by_the_stream_interval(start_server: StartServer, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say("abcdefghij"), Stop()]
    server = await start_server(stream_interval=4)
    stream = await server.stream_chat(stream_options={"include_usage": True})
    assert stream.text() == "abcdefghij"
    assert stream.chunks[-1]["usage"]["completion_tokens"] == 11


@pytest.mark.parametrize("by_request", [False, True])
async def test_the_time_limit_is_a_504_or_an_error_event(
    start_server: StartServer, engine: FakeEngine, by_request: bool
) -> None:
    engine.script = lambda request: [Say("x"), Silence()]
    server = await start_server(request_timeout=60 if by_request else 0.4)
    fields = {"timeout": 0.4} if by_request else {}
    status, answer = await server.chat(**fields)
    assert (status, answer["error"]["code"]) == (504, "timeout")
    stream = await server.stream_chat(**fields)
    assert stream.chunks[-1]["error"]["code"] == "timeout"
    assert not stream.done
    await until(lambda: len(engine.aborted) == 2)


async def test_a_slow_reader_gets_everything_in_larger_pieces(server: Server, engine: FakeEngine) -> None:
    text = "abcdefghij" * 40
    engine.script = lambda request: [Say(text), Stop()]
    async with server.http.post(server.url + CHAT, json=STREAM) as response:
        await asyncio.sleep(0.3)
        lines = [line for line in (await response.read()).decode().split("\n") if line.startswith("data: {")]
    joined = "".join(strict_json(line[6:])["choices"][0]["delta"].get("content", "") for line in lines)
    assert joined == text


async def test_streams_open_while_draining_say_why_they_end(start_server: StartServer, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say("x"), Silence()]
    server = await start_server()
    stream = asyncio.create_task(server.stream_chat())
    await until(lambda: server.streams_open() == 1)
    server.frontend.draining = True
    await server.listener.close()
    ended = await stream
    assert "shutting down" in ended.chunks[-1]["error"]["message"]


async def test_the_engine_connection_outlives_bad_clients(server: Server, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say("x" * 50), Stop()]
    for _ in range(5):
        with_timeout = aiohttp.ClientTimeout(total=0.01)
        try:
            async with server.http.post(server.url + CHAT, json=STREAM, timeout=with_timeout) as response:
                await response.read()
        except TimeoutError:
            pass
    status, _ = await server.chat()
    assert status == 200
