"""A frontend in front of a fake engine, both in the test's event loop, and clients for it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from pagewire.frontend.app import make_app
from pagewire.frontend.auth import Keys
from pagewire.frontend.catalog import read_supplied_template
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.listen import Listener
from pagewire.frontend.pool import EnginePool
from pagewire.frontend.state import FRONTEND, Frontend
from tests.fake_engine import FakeEngine, until


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
            return response.status, await response.json()

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        """GET; the status and the decoded answer."""
        async with self.http.get(self.url + path, headers=headers) as response:
            return response.status, await response.json()

    async def chat(self, content: str = "Hi", **fields: Any) -> tuple[int, Any]:
        """Ask one thing in a chat."""
        return await self.post(
            "/v1/chat/completions", {"model": "toy", "messages": [{"role": "user", "content": content}], **fields}
        )

    async def complete(self, prompt: Any = "Hi", **fields: Any) -> tuple[int, Any]:
        """Ask for one completion."""
        return await self.post("/v1/completions", {"model": "toy", "prompt": prompt, **fields})


StartServer = Callable[..., Awaitable[Server]]


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    """An engine that says "Hello there!"; serves once a server is started."""
    return FakeEngine(f"ipc://{tmp_path}/engine")


@pytest.fixture
async def start_server(engine: FakeEngine) -> AsyncIterator[StartServer]:
    """Start frontends with given options before the fake engine."""
    async with AsyncExitStack() as stack:

        async def start(*, with_engine: bool = True, **options: Any) -> Server:
            if with_engine:
                await stack.enter_async_context(engine.serving())
            config = FrontendConfig(**{"engine": (engine.address,), **options})
            app = make_app(config, EnginePool(config.engine, "test"), Keys.read(config), read_supplied_template(config))
            listener = Listener(app, config, port=0)
            await listener.open()
            stack.push_async_callback(listener.close)
            http = await stack.enter_async_context(aiohttp.ClientSession())
            server = Server(f"http://127.0.0.1:{listener.port}", app[FRONTEND], listener, http)
            if with_engine:
                await until(lambda: server.frontend.not_ready() is None)
            return server

        yield start


@pytest.fixture
async def server(start_server: StartServer) -> Server:
    """A frontend with default options, ready."""
    return await start_server()
