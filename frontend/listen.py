"""Listening: sockets, the HTTP server, and error objects even for what is not HTTP."""

import asyncio
import logging
import os
import ssl
from contextlib import suppress

from aiohttp import web

from pagewire.frontend.config import FrontendConfig
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
            access_log=None,  # type: ignore[arg-type]  # aiohttp takes None for no access log
            max_line_size=self._config.max_header_size,
            max_field_size=self._config.max_header_size,
        )


class _HttpProtocol(web.RequestHandler):
    """aiohttp's protocol, but what cannot be parsed as HTTP is answered with an error object as well."""

    __slots__ = ()

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
        response = from_http_status(status, request.method, request.path).response()
        response.force_close()
        return response
