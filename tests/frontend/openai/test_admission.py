"""Which requests take a place, and for how long."""

import asyncio
from typing import Any

import pytest

from pagewire.frontend.openai.bodies import FREE_BYTES, BodyShare
from pagewire.frontend.openai.errors import ApiError
from tests.fake_engine import FakeEngine, Say, Silence, until
from tests.frontend.running import Server, StartServer, chat_body

PATHS = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/chat/completions/render",
    "/v1/completions/render",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
]


async def begin(server: Server, path: str, length: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request with a body of which only the first byte is sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
    writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{{".encode())
    return reader, writer


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_that_does_not_come_takes_no_place_and_ends(start_server: StartServer, path: str) -> None:
    server = await start_server(max_inflight=1, body_timeout=0.2)
    reader, writer = await begin(server, path, 100)
    assert (await server.chat())[0] == 200
    assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    writer.close()


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_that_will_be_too_large_is_refused_before_it_comes(start_server: StartServer, path: str) -> None:
    server = await start_server(max_body_size=1000)
    reader, writer = await begin(server, path, 1001)
    assert (await reader.readline()).startswith(b"HTTP/1.1 413")
    writer.close()


@pytest.mark.parametrize("path", PATHS)
async def test_every_route_that_makes_work_needs_a_place(start_server: StartServer, path: str) -> None:
    server = await start_server(max_inflight=1)
    with server.frontend.admitted():
        assert (await server.post(path, {}))[0] == 429


async def test_bodies_take_no_more_than_their_memory_but_small_ones_get_in(start_server: StartServer) -> None:
    server = await start_server(max_body_size=2 * FREE_BYTES, max_body_memory=2 * FREE_BYTES)
    with BodyShare(server.frontend.bodies) as share:
        share.grow(3 * FREE_BYTES)
        assert (await server.chat())[0] == 200
        reader, writer = await begin(server, "/v1/chat/completions", FREE_BYTES + 1)
        assert b" 429 " in await reader.readline()
        assert b"Retry-After: 1\r\n" in await reader.readuntil(b"\r\n\r\n")
        writer.close()
        with pytest.raises(ApiError, match="try again soon"):
            share.grow(3 * FREE_BYTES + 1)
    assert server.frontend.bodies.held == 0


async def test_a_large_body_holds_memory_while_it_comes_and_until_its_answer_ends(
    start_server: StartServer, engine: FakeEngine
) -> None:
    engine.script = lambda request: [Say("x"), Silence()]
    size = FREE_BYTES + 1000
    server = await start_server(max_body_size=size, max_body_memory=size)
    _, writer = await begin(server, "/v1/chat/completions", size)
    writer.write(b" " * (size - 100))
    await until(lambda: server.frontend.bodies.held > 0)
    writer.close()
    await until(lambda: server.frontend.bodies.held == 0)

    body = chat_body("Hi", stream=True, user="x" * FREE_BYTES)
    async with server.http.post(f"{server.url}/v1/chat/completions", json=body):
        await until(lambda: server.streams_open() == 1)
        assert server.frontend.bodies.held > 0
    await until(lambda: server.frontend.bodies.held == 0)


REQUEST = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("before", [b"", REQUEST])
@pytest.mark.parametrize("sent", [b"", b"G", REQUEST[:-1]])
async def test_a_head_that_does_not_come_ends_its_connection(
    start_server: StartServer, before: bytes, sent: bytes
) -> None:
    server = await start_server(header_timeout=0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
    if before:
        writer.write(before)
        await reader.readuntil(b"}")
    writer.write(sent)
    if before and not sent:
        # Idle between two requests, it stays.
        await asyncio.sleep(0.2)
        writer.write(REQUEST)
        assert await reader.readuntil(b"}")
    else:
        assert await reader.read() == b""
    writer.close()


async def test_a_client_that_does_not_read_loses_its_place(start_server: StartServer, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say("x"), Silence()]
    server = await start_server(unread_timeout=0.1)
    async with server.http.post(f"{server.url}/v1/chat/completions", json=chat_body("Hi", stream=True)):
        await until(lambda: server.streams_open() == 1)
        # What the transport does when its buffer is full.
        [connection] = server.listener.connections
        connection.pause_writing()
        await until(lambda: server.frontend.inflight == 0)
    await until(lambda: engine.aborted)


@pytest.mark.parametrize("by_request", [False, True])
async def test_the_time_limit_covers_what_comes_before_the_engine(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, by_request: bool
) -> None:
    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    server = await start_server(request_timeout=60 if by_request else 0.2)
    monkeypatch.setattr(server.frontend.catalog, "find", never)
    status, answer = await server.chat(**{"timeout": 0.2} if by_request else {})
    assert (status, answer["error"]["code"]) == (504, "timeout")
    assert server.frontend.inflight == 0
