"""What the handlers of one frontend share. Nothing here is global: every app has its own."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from pagewire.frontend.auth import Keys
from pagewire.frontend.catalog import Catalog
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.grammars.checker import GrammarChecker
from pagewire.frontend.metrics import Metrics
from pagewire.frontend.openai.bodies import BodyMemory
from pagewire.frontend.openai.errors import overloaded, unavailable
from pagewire.frontend.pool import EnginePool


class Frontend:
    """The configuration, the engines, the models, the keys, the metrics, and how many requests are open."""

    def __init__(self, config: FrontendConfig, pool: EnginePool, catalog: Catalog, keys: Keys, metrics: Metrics):
        """``keys`` is replaced whole when keys are reloaded; the rest stays."""
        self.config = config
        self.pool = pool
        self.catalog = catalog
        self.keys = keys
        self.metrics = metrics
        self.grammars = GrammarChecker()
        self.bodies = BodyMemory(config.max_body_memory, metrics.rejections.labels("body_memory").inc)
        self.draining = False
        self.inflight = 0
        # Set while no request is open.
        self.idle = asyncio.Event()
        self.idle.set()

    def not_ready(self) -> str | None:
        """Why requests cannot be answered now, or None."""
        return "the server is shutting down" if self.draining else self.pool.not_ready()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Count a request as open; raises ApiError 503 while draining and 429 when too many are open."""
        if self.draining:
            raise unavailable("The server is shutting down.")
        if self.inflight >= self.config.max_inflight:
            self.metrics.rejections.labels("max_inflight").inc()
            raise overloaded(f"The server has {self.inflight} open requests, its limit; try again soon.")
        self.inflight += 1
        self.idle.clear()
        try:
            yield
        finally:
            self.inflight -= 1
            if not self.inflight:
                self.idle.set()


FRONTEND: web.AppKey[Frontend] = web.AppKey("frontend", Frontend)
