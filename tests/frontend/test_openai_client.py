"""OpenAI's own Python client, sync and async, does everything against this server."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import openai

from tests.fake_engine import FakeEngine, say
from tests.frontend.running import Server

T = TypeVar("T")
MESSAGES = [{"role": "user", "content": "Hi"}]


async def in_thread(server: Server, work: Callable[[openai.OpenAI], T]) -> T:
    """Run the synchronous client beside the server's event loop."""

    def run() -> T:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            return work(client)

    return await asyncio.to_thread(run)


async def test_async_chat(server: Server) -> None:
    answer = await server.client().chat.completions.create(model="toy", messages=MESSAGES, logprobs=True)
    assert answer.choices[0].message.content == "Hello there!"
    assert answer.usage
    assert answer.usage.prompt_tokens_details
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_async_chat_stream(server: Server) -> None:
    stream = await server.client().chat.completions.create(
        model="toy", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello there!"
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == 13


async def test_the_stream_helper(server: Server) -> None:
    async with server.client().chat.completions.stream(model="toy", messages=MESSAGES, n=2) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == ["Hello there!"] * 2


async def test_raw_responses_carry_the_headers(server: Server) -> None:
    raw = await server.client().chat.completions.with_raw_response.create(model="toy", messages=MESSAGES, user="me")
    assert raw.headers["X-Ignored-Params"] == "user"
    assert raw.headers["X-Request-Id"] == raw.request_id
    assert raw.parse().choices[0].finish_reason == "stop"


async def test_sync_chat_completions_and_models(server: Server, engine: FakeEngine) -> None:
    engine.script = say("Hé 😀")
    chat = await in_thread(server, lambda client: client.chat.completions.create(model="toy", messages=MESSAGES))
    assert chat.choices[0].message.content == "Hé 😀"
    completion = await in_thread(
        server, lambda client: client.completions.create(model="toy", prompt=["a", "b"], echo=True, logprobs=1)
    )
    assert [choice.text for choice in completion.choices] == ["aHé 😀", "bHé 😀"]
    models = await in_thread(server, lambda client: list(client.models.list()))
    assert models[0].id == "toy"


async def test_sync_streams(server: Server) -> None:
    def read(client: openai.OpenAI) -> str:
        stream = client.completions.create(model="toy", prompt="x", stream=True)
        return "".join(chunk.choices[0].text for chunk in stream)

    assert await in_thread(server, read) == "Hello there!"
