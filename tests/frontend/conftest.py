"""A frontend in front of a fake engine, both in the test's event loop, and clients for it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pagewire.frontend.app import make_app
from pagewire.frontend.auth import Keys
from pagewire.frontend.catalog import read_supplied_template
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.listen import Listener
from pagewire.frontend.pool import EnginePool
from pagewire.frontend.state import FRONTEND
from tests.fake_engine import FakeEngine, until
from tests.frontend.running import Server, StartServer


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
            http = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)))
            server = Server(f"http://127.0.0.1:{listener.port}", app[FRONTEND], listener, http)
            if with_engine:
                await until(lambda: server.frontend.not_ready() is None)
            return server

        yield start


@pytest.fixture
async def server(start_server: StartServer) -> Server:
    """A frontend with default options, ready."""
    return await start_server()
