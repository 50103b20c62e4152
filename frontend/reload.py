"""What SIGHUP does: read keys, certificate and chat template again; whatever cannot be read stays as it was."""

import asyncio
import logging
import ssl

from pagewire.frontend.auth import Keys
from pagewire.frontend.catalog import read_supplied_template
from pagewire.frontend.state import Frontend
from pagewire.frontend.template import TemplateError
from pagewire.frontend.tls import load_certificate

logger = logging.getLogger(__name__)


class Reloader:
    """Reads again what files and pages hold. Requests under way keep what they began with."""

    def __init__(self, frontend: Frontend, tls: ssl.SSLContext | None):
        """``tls`` is the context that the listener uses."""
        self._frontend = frontend
        self._tls = tls
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Read everything again in the background; a template may come from a slow server."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._reload())

    async def _reload(self) -> None:
        self._reload_keys()
        self._reload_certificate()
        await self._reload_template()

    def _reload_keys(self) -> None:
        frontend = self._frontend
        try:
            frontend.keys = Keys.read(frontend.config)
        except ValueError as error:
            logger.error("keys stay as they were: %s", error)
        else:
            logger.info("read the keys again: %d now", len(frontend.keys.known))

    def _reload_certificate(self) -> None:
        if self._tls is None:
            return
        try:
            load_certificate(self._tls, self._frontend.config)
        except ValueError as error:
            logger.error("the certificate stays as it was: %s", error)
        else:
            logger.info("read the certificate again")

    async def _reload_template(self) -> None:
        try:
            supplied = await asyncio.to_thread(read_supplied_template, self._frontend.config)
        except TemplateError as error:
            logger.error("the chat template stays as it was: %s", error)
            return
        if supplied is not None:
            self._frontend.catalog.use_template(supplied)
            logger.info("read the chat template again")
