"""Listening: sockets, the HTTP server, and error objects even for what is not HTTP."""

import asyncio
import logging
import os
import ssl
from contextlib import suppress
from typing import Any

from aiohttp import web

from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.middlewares import request_id
from pagewire.frontend.openai.errors import from_http_status

logger = logging.getLogger(__name__)

# Connections that wait to be accepted; a burst of clients must not see refusals.
_BACKLOG = 2048
# How long a client may leave lying what it was sent, beyond what the system's buffers take. Its request is open
# meanwhile, and the engine generates for it.
UNREAD_SECONDS = 60.0


class Listener:
    """The HTTP server of one app: opens, stops taking connections, closes."""

    def __init__(
        self,
        app: web.Application,
        config: FrontendConfig,
        port: int | None = None,
        tls: ssl.SSLContext | None = None,
    ):
        """Nothing is opened yet; ``port`` replaces the configured one, 0 lets the system choose."""
        self._config = config
        self._port = config.port if port is None else port
        self._tls = tls
        # A handler is cancelled when its client goes; leaving its generations aborts them.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Start the app and listen; raises ``OSError`` if the address cannot be used."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        config = self._config
        if config.uds:
            self._server = await loop.create_unix_server(
                self._make_protocol, config.uds, backlog=_BACKLOG, ssl=self._tls
            )
        else:
            self._server = await loop.create_server(
                self._make_protocol, config.host, self._port, backlog=_BACKLOG, reuse_address=True, ssl=self._tls
            )

    @property
    def port(self) -> int:
        """The port listened at."""
        assert self._server
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def connections(self) -> list[web.RequestHandler]:
        """Those that are open."""
        return self._runner.server.connections if self._runner.server else []

    def stop_accepting(self) -> None:
        """Take no more connections; those that are open go on."""
        if self._server:
            self._server.close()
            self._server = None
            if self._config.uds:
                with suppress(OSError):
                    os.unlink(self._config.uds)

    async def close(self) -> None:
        """Close all connections and stop the app."""
        self.stop_accepting()
        await self._runner.cleanup()

    def _make_protocol(self) -> web.RequestHandler:
        server = self._runner.server
        assert server
        return _HttpProtocol(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # aiohttp takes None for no access log
            max_line_size=self._config.max_header_size,
            max_field_size=self._config.max_header_size,
        )


class _HttpProtocol(web.RequestHandler):
    """aiohttp's protocol, but what cannot be parsed as HTTP is answered with an error object as well."""

    __slots__ = ("_unread",)

    def __init__(self, *args: Any, **options: Any):
        """Nothing was sent yet."""
        super().__init__(*args, **options)
        self._unread: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        """The client does not read as fast as it is sent to: give it some time."""
        super().pause_writing()
        self._unread = self._loop.call_later(UNREAD_SECONDS, self._give_up)

    def resume_writing(self) -> None:
        """It has read."""
        self._stop_waiting()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """It has gone."""
        self._stop_waiting()
        super().connection_lost(exc)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Answer with an error object even where aiohttp refused a request before our middlewares saw it."""
        if isinstance(resp, web.HTTPException) and resp.status >= 400:
            resp = _error(request, resp.status)
        return await super().finish_response(request, resp, start_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer a request that reached no handler, or whose handler broke, and close the connection."""
        if status >= 500:
            logger.error("a request failed outside of its handler", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun, so it can only be cut off")
        response = _error(request, status)
        response.force_close()
        return response

    def _give_up(self) -> None:
        if self.transport is not None:
            logger.info("a client did not read its answer for %g s: its connection is closed", UNREAD_SECONDS)
            self.transport.abort()

    def _stop_waiting(self) -> None:
        if self._unread:
            self._unread.cancel()
            self._unread = None


def _error(request: web.BaseRequest, status: int) -> web.Response:
    response = from_http_status(status, request.method, request.path).response()
    response.headers["X-Request-Id"] = request_id(request.headers.get("X-Request-Id"))
    return response
