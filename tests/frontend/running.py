"""A frontend that a test has started, and the ways a test talks to it."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import openai

from pagewire.frontend.listen import Listener
from pagewire.frontend.state import Frontend


@dataclass
class Server:
    """A running frontend."""

    url: str
    frontend: Frontend
    listener: Listener
    http: aiohttp.ClientSession

    def client(self, **options: Any) -> openai.AsyncOpenAI:
        """OpenAI's own client; it must not hide errors by trying again."""
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", **{"api_key": "none", "max_retries": 0, **options})

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        """POST JSON; the status and the decoded answer."""
        async with self.http.post(self.url + path, json=body, headers=headers) as response:
            return response.status, strict_json(await response.read())

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        """GET; the status and the decoded answer."""
        async with self.http.get(self.url + path, headers=headers) as response:
            return response.status, strict_json(await response.read())

    async def chat(self, content: Any = "Hi", **fields: Any) -> tuple[int, Any]:
        """Ask one thing in a chat, or send given messages."""
        return await self.post("/v1/chat/completions", chat_body(content, **fields))

    async def complete(self, prompt: Any = "Hi", **fields: Any) -> tuple[int, Any]:
        """Ask for one completion."""
        return await self.post("/v1/completions", {"model": "toy", "prompt": prompt, **fields})

    async def stream_chat(self, content: Any = "Hi", **fields: Any) -> "Stream":
        """Stream a chat to its end."""
        return await self.stream("/v1/chat/completions", chat_body(content, **fields))

    async def stream_completion(self, prompt: Any = "Hi", **fields: Any) -> "Stream":
        """Stream a completion to its end."""
        return await self.stream("/v1/completions", {"model": "toy", "prompt": prompt, **fields})

    async def stream(
        self, path: str, body: dict[str, Any], after: bytes = b"", then: Callable[[], Any] = lambda: None
    ) -> "Stream":
        """POST and read a whole stream, doing ``then`` when ``after`` has arrived; fails unless it is a stream."""
        async with self.http.post(self.url + path, json={**body, "stream": True}) as response:
            raw = b""
            while after not in raw and not response.content.at_eof():
                raw += await response.content.readany()
            then()
            raw += await response.read()
            assert response.status == 200, raw
            assert response.content_type == "text/event-stream"
            return Stream(raw)

    def streams_open(self) -> float | None:
        """How many streams have begun and not ended."""
        return self.frontend.metrics.registry.get_sample_value("pagewire_streams_open")


class Stream:
    """The events of a stream that has ended."""

    def __init__(self, raw: bytes):
        """Split ``raw``; fails if it is not exactly framed."""
        assert raw.endswith(b"\n\n")
        blocks = raw.decode().removesuffix("\n\n").split("\n\n")
        self.comments = [block for block in blocks if block.startswith(":")]
        events = [block for block in blocks if not block.startswith(":")]
        assert all(event.startswith("data: ") and "\n" not in event for event in events)
        payloads = [event.removeprefix("data: ") for event in events]
        self.done = payloads[-1] == "[DONE]"
        self.chunks: list[dict[str, Any]] = [strict_json(payload) for payload in payloads if payload != "[DONE]"]

    @property
    def choices(self) -> list[dict[str, Any]]:
        """The choices of all chunks, in order."""
        return [choice for chunk in self.chunks for choice in chunk.get("choices", [])]

    def of(self, index: int) -> list[dict[str, Any]]:
        """The parts of one choice."""
        return [choice for choice in self.choices if choice["index"] == index]

    def text(self, index: int = 0) -> str:
        """The joined text of one choice."""
        return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in self.of(index))


StartServer = Callable[..., Awaitable[Server]]


def chat_body(content: Any, **fields: Any) -> dict[str, Any]:
    """A chat request with one user message, or with the messages given."""
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return {"model": "toy", "messages": messages, **fields}


def strict_json(data: bytes | str) -> Any:
    """Decode JSON as a strict client does: NaN and Infinity are not JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(data, parse_constant=refuse)
