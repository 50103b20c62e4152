"""A server with known timings, to test the harness and to find its own ceiling: it computes nothing.

It speaks enough of the OpenAI API for the harness, remembers when it sent what, and misbehaves on request.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

MODEL = "stub"


class StubSettings(Struct, frozen=True):
    """Timings and faults. ``tokens_per_event`` tokens share one event; times are in seconds.

    ``statuses`` answers requests (by number, from 0) with an HTTP error; ``stalls`` adds a pause before the middle of
    their output; ``cuts`` closes their connection half-way; ``failures`` sends an error event there.
    """

    ttft_s: float = 0.0
    itl_s: float = 0.0
    tokens_per_event: int = 1
    statuses: Mapping[int, int] = {}
    stalls: Mapping[int, float] = {}
    cuts: frozenset[int] = frozenset()
    failures: frozenset[int] = frozenset()
    usage: bool = True


class StubLog(Struct):
    """What the stub did with one request: when it came, and when each event with output was written."""

    body: dict[str, Any]
    received: float
    sent: list[float] = []


class StubServer:
    """The application; ``log`` has an entry per generation request in order of arrival."""

    def __init__(self, settings: StubSettings) -> None:
        """Start with an empty log."""
        self.settings = settings
        self.log: list[StubLog] = []

    def app(self) -> web.Application:
        """Build the aiohttp application."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._generate)
        app.router.add_post("/v1/chat/completions", self._generate)
        app.router.add_post("/tokenize", self._tokenize)
        return app

    async def _models(self, _: web.Request) -> web.Response:
        return _json({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        return _json({"tokens": list(range(1000, 1000 + _count_prompt(body)))})

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        received = time.perf_counter()
        number = len(self.log)
        body = msgspec.json.decode(await request.read())
        entry = StubLog(body, received)
        self.log.append(entry)
        status = self.settings.statuses.get(number)
        if status is not None:
            return _json({"error": {"message": f"refused with {status}", "code": status}}, status)
        if body.get("stream"):
            return await self._stream(request, number, entry)
        tokens = body["max_tokens"]
        await asyncio.sleep(self.settings.ttft_s + self.settings.itl_s * (tokens - 1))
        text = " x" * tokens
        choice = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
        return _json({"choices": [{"index": 0, "finish_reason": "length", **choice}], "usage": _usage(body)})

    async def _stream(self, request: web.Request, number: int, entry: StubLog) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        body, settings = entry.body, self.settings
        events = -(-body["max_tokens"] // settings.tokens_per_event)
        if "messages" in body:
            await response.write(_event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))
        # Each event is due at a fixed time after the request came, so that lateness does not add up.
        due = entry.received + settings.ttft_s
        for position in range(events):
            if position == events // 2:
                due += settings.stalls.get(number, 0.0)
                if number in settings.cuts:
                    request.protocol.force_close()
                    return response
                if number in settings.failures:
                    await response.write(_event({"error": {"message": "the stub fails on request"}}))
                    return response
            await _sleep_until(due)
            entry.sent.append(time.perf_counter())
            await response.write(self._output_event(body, last=position == events - 1))
            due += settings.itl_s
        if settings.usage:
            await response.write(_event({"choices": [], "usage": _usage(body)}))
        await response.write(b"data: [DONE]\n\n")
        return response

    def _output_event(self, body: Mapping[str, Any], *, last: bool) -> bytes:
        text = " x" * self.settings.tokens_per_event
        content: dict[str, Any] = {"delta": {"content": text}} if "messages" in body else {"text": text}
        return _event({"choices": [{"index": 0, "finish_reason": "length" if last else None, **content}]})


async def _sleep_until(due: float) -> None:
    wait = due - time.perf_counter()
    if wait > 0:
        await asyncio.sleep(wait)


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def _json(data: Mapping[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(data), status=status, content_type="application/json")


def _count_prompt(body: Mapping[str, Any]) -> int:
    """Count tokens the stub's way: ids, or words."""
    if "messages" in body:
        return sum(len(message["content"].split()) for message in body["messages"])
    prompt = body["prompt"]
    return len(prompt.split()) if isinstance(prompt, str) else len(prompt)


def _usage(body: Mapping[str, Any]) -> dict[str, int]:
    return {"prompt_tokens": _count_prompt(body), "completion_tokens": body["max_tokens"]}


@asynccontextmanager
async def serve_stub(
    settings: StubSettings, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[tuple[StubServer, str]]:
    """Run a stub inside this event loop; gives the server and its URL. Port 0 takes a free one."""
    stub = StubServer(settings)
    runner = web.AppRunner(stub.app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    try:
        yield stub, f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
