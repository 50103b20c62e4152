"""What happens to requests when a program dies, stands still, or is told to stop."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from tests.e2e.conftest import TINY_ENGINE
from tests.e2e.programs import Deployment, Frontend, Program, wait_until
from tests.tiny_chat_model import NAME

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
NOTICE_S = 2.0
# More tokens than any test waits for, and few enough that a drain is over soon.
ENDLESS, SHORT = 10_000, 400


class Chat:
    """A streamed chat that has begun."""

    def __init__(self, stream: AsyncIterator[ChatCompletionChunk]):
        self._stream = stream
        self.finish_reason: str | None = None
        self.num_chunks = 0

    @classmethod
    async def begin(cls, client: openai.AsyncOpenAI, max_tokens: int) -> "Chat":
        chat = cls(
            await client.chat.completions.create(
                model=NAME,
                messages=HELLO,
                max_tokens=max_tokens,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True},
            )
        )
        await anext(chat._stream)
        return chat

    async def read_to_the_end(self) -> None:
        async for chunk in self._stream:
            self.num_chunks += 1
            self.finish_reason = chunk.choices[0].finish_reason or self.finish_reason


async def begin(client: openai.AsyncOpenAI, number: int, max_tokens: int = ENDLESS) -> list[Chat]:
    return await asyncio.gather(*(Chat.begin(client, max_tokens) for _ in range(number)))


async def ask(client: openai.AsyncOpenAI) -> None:
    """A request without a stream that does not come to an end."""
    await client.chat.completions.create(
        model=NAME, messages=HELLO, max_tokens=ENDLESS, extra_body={"ignore_eos": True}
    )


@pytest.fixture
def engine(own_deployment: Deployment, tiny_model_directory: Path) -> Program:
    return own_deployment.start_engine(tiny_model_directory, *TINY_ENGINE)


@pytest.fixture
def frontend(own_deployment: Deployment, engine: Program) -> Frontend:
    frontend = own_deployment.start_frontend()
    frontend.wait_until_ready()
    return frontend


async def test_when_the_engine_is_killed_every_request_gets_an_error_and_the_next_engine_serves_again(
    own_deployment: Deployment, engine: Program, frontend: Frontend, tiny_model_directory: Path
) -> None:
    async with frontend.async_client() as client:
        chats = await begin(client, 8)
        plain = [asyncio.create_task(ask(client)) for _ in range(4)]
        await asyncio.to_thread(wait_until, lambda: frontend.gauge("num_requests_running") == 12, "not all run")
        engine.kill()
        killed = time.monotonic()
        outcomes = await asyncio.gather(*(chat.read_to_the_end() for chat in chats), *plain, return_exceptions=True)
        assert time.monotonic() - killed < NOTICE_S
        # A stream can only end with an event; what has not been answered yet still gets its status.
        assert [type(outcome) for outcome in outcomes] == [openai.APIError] * 8 + [openai.InternalServerError] * 4
        assert [outcome.status_code for outcome in outcomes if isinstance(outcome, openai.APIStatusError)] == [503] * 4
        status, body = frontend.get("/ready")
        assert (status, "the engine went away" in body) == (503, True)
        own_deployment.start_engine(tiny_model_directory, *TINY_ENGINE)
        await asyncio.to_thread(frontend.wait_until_ready)
        (chat,) = await begin(client, 1, max_tokens=5)
        await chat.read_to_the_end()
        assert chat.finish_reason == "length"


async def test_when_a_frontend_is_killed_the_engine_drops_its_requests(
    own_deployment: Deployment, engine: Program, frontend: Frontend
) -> None:
    other = own_deployment.start_frontend()
    other.wait_until_ready()
    async with frontend.async_client() as client:
        await begin(client, 4)
        await asyncio.to_thread(wait_until, lambda: other.gauge("num_requests_running") == 4, "not all run")
        frontend.kill()
        await asyncio.to_thread(other.wait_until_idle)
    assert "dropped its 4 requests" in engine.log.read_text(encoding="utf-8")


async def test_an_engine_told_to_stop_finishes_what_runs(engine: Program, frontend: Frontend) -> None:
    async with frontend.async_client() as client:
        chats = await begin(client, 3, max_tokens=SHORT)
        engine.terminate()
        await asyncio.gather(*(chat.read_to_the_end() for chat in chats))
    assert [chat.finish_reason for chat in chats] == ["length"] * 3
    assert await asyncio.to_thread(engine.wait) == 0
    await asyncio.to_thread(frontend.wait_for_ready_status, 503)


async def test_a_frontend_told_to_stop_finishes_what_runs_and_takes_nothing_new(
    engine: Program, frontend: Frontend
) -> None:
    async with frontend.async_client() as client:
        chats = await begin(client, 3, max_tokens=SHORT)
        frontend.terminate()
        await asyncio.gather(*(chat.read_to_the_end() for chat in chats))
    assert [chat.finish_reason for chat in chats] == ["length"] * 3
    assert await asyncio.to_thread(frontend.wait) == 0
    assert frontend.get("/health")[0] == 0
    assert engine.process.poll() is None


async def test_a_second_signal_stops_an_engine_at_once(engine: Program, frontend: Frontend) -> None:
    async with frontend.async_client() as client:
        chats = await begin(client, 1)
        engine.terminate()
        await asyncio.to_thread(frontend.wait_for_ready_status, 503)
        engine.terminate()
        assert await asyncio.to_thread(engine.wait) == 128 + signal.SIGTERM
        with pytest.raises(openai.APIError):
            await chats[0].read_to_the_end()
