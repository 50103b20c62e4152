"""Two hundred chats at once, a third of them left half-way: the others are right, and nothing is left behind."""

import asyncio
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import TINY_ENGINE
from tests.e2e.programs import Deployment, Frontend, Program
from tests.tiny_chat_model import NAME

NUM_CHATS = 200
# So few that most requests wait for others to end.
NUM_BLOCKS = "80"
MEMORY_TOLERANCE = 1.05


@dataclass(frozen=True)
class Chat:
    """One request, and after how many tokens its client leaves (None: never)."""

    content: str
    max_tokens: int
    leaves_after: int | None

    @property
    def body(self) -> dict[str, Any]:
        return {
            "model": NAME,
            "messages": [{"role": "user", "content": self.content}],
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }


@dataclass
class Answer:
    """What a client has read."""

    text: str = ""
    num_chunks: int = 0
    finish_reasons: tuple[str, ...] = ()
    usage: dict[str, Any] | None = None
    done: bool = False

    def take(self, event: bytes) -> None:
        payload = event.removeprefix(b"data: ").strip()
        if payload == b"[DONE]":
            self.done = True
            return
        chunk = json.loads(payload)
        self.num_chunks += 1
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            self.text += choice["delta"].get("content") or ""
            if choice["finish_reason"]:
                self.finish_reasons += (choice["finish_reason"],)


def make_chats(seed: int) -> list[Chat]:
    draw = random.Random(seed)
    chats = []
    for number in range(NUM_CHATS):
        max_tokens = draw.randint(8, 64)
        content = f"{number} " + "word " * draw.randint(0, 40)
        chats.append(Chat(content, max_tokens, max_tokens // 2 if number % 3 == 0 else None))
    return chats


async def stream(http: aiohttp.ClientSession, frontend: Frontend, chat: Chat) -> Answer:
    body = chat.body | {"stream": True, "stream_options": {"include_usage": True}}
    answer = Answer()
    async with http.post(f"{frontend.url}/v1/chat/completions", json=body) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if line.startswith(b"data: "):
                answer.take(line)
            if chat.leaves_after is not None and answer.num_chunks >= chat.leaves_after:
                response.close()
                break
    return answer


async def ask(http: aiohttp.ClientSession, frontend: Frontend, chat: Chat) -> str:
    async with http.post(f"{frontend.url}/v1/chat/completions", json=chat.body) as response:
        text: str = (await response.json())["choices"][0]["message"]["content"]
        return text


@pytest.fixture
def engine(own_deployment: Deployment, tiny_model_directory: Path) -> Program:
    return own_deployment.start_engine(tiny_model_directory, *TINY_ENGINE, "--num-kv-blocks", NUM_BLOCKS)


@pytest.fixture
def frontend(own_deployment: Deployment, engine: Program) -> Frontend:
    frontend = own_deployment.start_frontend()
    frontend.wait_until_ready()
    return frontend


async def run_all(frontend: Frontend, chats: list[Chat]) -> list[Answer]:
    """All at once; returns when the engine is idle again."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as http:
        answers = await asyncio.gather(*(stream(http, frontend, chat) for chat in chats))
    await asyncio.to_thread(frontend.wait_until_idle)
    return list(answers)


async def test_of_many_chats_those_that_stay_are_complete_and_right_and_nothing_is_left(
    engine: Program, frontend: Frontend
) -> None:
    chats = make_chats(seed=1)
    answers = await run_all(frontend, chats)
    stayed = [(chat, answer) for chat, answer in zip(chats, answers, strict=True) if chat.leaves_after is None]
    for chat, answer in stayed:
        assert answer.done
        assert answer.finish_reasons == ("length",)
        assert answer.usage is not None
        assert answer.usage["completion_tokens"] == chat.max_tokens
    async with aiohttp.ClientSession() as http:
        for chat, answer in stayed[::8]:
            assert answer.text == await ask(http, frontend, chat), "a lone run says something else"
    assert frontend.gauge("engine_aborts_total") > NUM_CHATS // 6

    programs = (engine, frontend)
    after_one = [program.resident_bytes() for program in programs]
    await run_all(frontend, make_chats(seed=2))
    for program, before in zip(programs, after_one, strict=True):
        assert program.resident_bytes() < before * MEMORY_TOLERANCE
    assert frontend.gauge("streams_open") == 0
