"""One answer as typed events: signs of life, the size of events, and hostile nesting, in both APIs that are made so."""

import asyncio
from typing import Any

import pytest

from tests.fake_engine import FakeEngine, Say, Stop, Wait
from tests.frontend.running import Server, StartServer
from tests.frontend.test_errors import NESTED

RESPONSE = ("/v1/responses", {"model": "toy", "input": "Hi"})
MESSAGE = ("/v1/messages", {"model": "toy", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]})
TEXT_DELTAS = {"/v1/responses": b"event: response.output_text.delta", "/v1/messages": b"event: content_block_delta"}
KEEP_ALIVES = {"/v1/responses": b": keep-alive\n\n", "/v1/messages": b'event: ping\ndata: {"type":"ping"}\n\n'}


@pytest.mark.parametrize(("path", "body"), [RESPONSE, MESSAGE])
async def test_a_stream_that_waits_gives_signs_of_life(
    engine: FakeEngine, start_server: StartServer, path: str, body: dict[str, Any]
) -> None:
    answering = asyncio.Event()
    engine.script = lambda request: [Wait(answering), Say("x"), Stop()]
    server = await start_server(sse_keep_alive_interval=0.01)
    async with server.http.post(server.url + path, json={**body, "stream": True}) as response:
        raw = b""
        while raw.count(KEEP_ALIVES[path]) < 3:
            raw += await response.content.readany()
        answering.set()
        raw += await response.read()
    assert raw.count(TEXT_DELTAS[path]) == 1


@pytest.mark.parametrize(("path", "body"), [RESPONSE, MESSAGE])
async def test_the_stream_interval_is_the_tokens_of_an_event(
    start_server: StartServer, path: str, body: dict[str, Any]
) -> None:
    server = await start_server(stream_interval=100)
    async with server.http.post(server.url + path, json={**body, "stream": True}) as response:
        raw = await response.read()
    # The first tokens, then everything else.
    assert 1 <= raw.count(TEXT_DELTAS[path]) <= 2


FUNCTION = {"name": "f", "parameters": {"type": "object", "x": NESTED}}
DEEP: list[tuple[str, dict[str, Any]]] = [
    ("/v1/responses", {"input": NESTED}),
    ("/v1/responses", {"input": [{"role": "user", "content": NESTED}]}),
    ("/v1/responses", {"input": "Hi", "tools": [{"type": "function", **FUNCTION}]}),
    ("/v1/responses", {"input": "Hi", "tools": [{"type": "function", **FUNCTION}], "tool_choice": "required"}),
    (
        "/v1/responses",
        {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "n", "schema": {"x": NESTED}}}},
    ),
    ("/v1/responses", {"input": "Hi", "chat_template_kwargs": {"x": NESTED}}),
    ("/v1/responses", {"input": "Hi", "tool_choice": {"type": NESTED}}),
    ("/v1/messages", {"messages": NESTED}),
    ("/v1/messages", {"messages": [{"role": "user", "content": NESTED}]}),
    ("/v1/messages", {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"x": NESTED}}]}]}),
    ("/v1/messages", {"messages": MESSAGE[1]["messages"], "tools": [{"name": "f", "input_schema": {"x": NESTED}}]}),
    ("/v1/messages", {"messages": MESSAGE[1]["messages"], "tool_choice": {"type": NESTED}}),
]


@pytest.mark.parametrize(("path", "fields"), DEEP)
@pytest.mark.parametrize("stream", [False, True])
async def test_deep_nesting_is_no_failure_of_the_server(
    server: Server, path: str, fields: dict[str, Any], stream: bool
) -> None:
    body = {"model": "toy", "max_tokens": 50, "stream": stream, **fields}
    if path == "/v1/responses":
        del body["max_tokens"]
    async with server.http.post(server.url + path, json=body) as response:
        assert response.status in (200, 400), await response.text()
        assert b"failed" not in await response.read()
