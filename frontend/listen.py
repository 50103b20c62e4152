"""Listening: sockets, the HTTP server, and error objects even for what is not HTTP."""

import asyncio
import logging
import os
import ssl
from contextlib import suppress
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError

from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.middlewares import SERVER, request_id
from pagewire.frontend.openai.errors import from_http_status

logger = logging.getLogger(__name__)

# Connections that wait to be accepted; a burst of clients must not see refusals.
_BACKLOG = 2048


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
            header_seconds=self._config.header_timeout,
            unread_seconds=self._config.unread_timeout,
            loop=asyncio.get_running_loop(),
            access_log=None,  # aiohttp takes None for no access log
            max_line_size=self._config.max_header_size,
            max_field_size=self._config.max_header_size,
        )


class _HttpProtocol(web.RequestHandler):
    """aiohttp's protocol, with two clocks more; what cannot be parsed as HTTP is answered with an error object, too."""

    __slots__ = ("_header_seconds", "_headers", "_unread", "_unread_seconds")

    def __init__(self, *args: Any, header_seconds: float, unread_seconds: float, **options: Any):
        """``header_seconds`` are for a request's head, ``unread_seconds`` for a client to read what it was sent."""
        super().__init__(*args, **options)
        self._header_seconds = header_seconds
        self._unread_seconds = unread_seconds
        # The clocks that are running.
        self._headers: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come: it must ask for something."""
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Part of a request has come: if it is of the head, the rest must follow."""
        super().data_received(data)
        # As in aiohttp's check for idle connections: this is what it waits on between requests.
        if self._waiter is None or self._waiter.done():
            self._stop_awaiting_headers()
        elif self._headers is None:
            self._await_headers()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is sent to: give it some time."""
        super().pause_writing()
        self._unread = self._loop.call_later(self._unread_seconds, self._give_up)

    def resume_writing(self) -> None:
        """It has read."""
        self._stop_waiting()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """It has gone."""
        self._stop_waiting()
        self._stop_awaiting_headers()
        super().connection_lost(exc)

    def log_exception(self, *args: Any, **options: Any) -> None:
        """Log what broke while a request was dealt with; not that its body did, which its client was told."""
        if not isinstance(options.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **options)

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
        if isinstance(exc, ContentEncodingError):
            # One that aiohttp knows and lacks the library for.
            status = 415
        if status >= 500:
            logger.error("a request failed outside of its handler", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun, so it can only be cut off")
        response = _error(request, status)
        response.force_close()
        return response

    def _give_up(self) -> None:
        if self.transport is not None:
            seconds = self._unread_seconds
            logger.info("a client did not read its answer for %g s: its connection is closed", seconds)
            self.transport.abort()

    def _stop_waiting(self) -> None:
        if self._unread:
            self._unread.cancel()
            self._unread = None

    def _await_headers(self) -> None:
        self._headers = self._loop.call_later(self._header_seconds, self.force_close)

    def _stop_awaiting_headers(self) -> None:
        if self._headers:
            self._headers.cancel()
            self._headers = None


def _error(request: web.BaseRequest, status: int) -> web.Response:
    response = from_http_status(status, request.method, request.path).response()
    response.headers["Server"] = SERVER
    response.headers["X-Request-Id"] = request_id(request.headers.get("X-Request-Id"))
    return response
