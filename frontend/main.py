"""``pagewire-frontend``: listen, serve, and drain when told to stop."""

import asyncio
import logging
import os
import signal
import ssl
import sys
from collections.abc import Sequence
from contextlib import suppress

import uvloop

from pagewire.frontend.app import make_app
from pagewire.frontend.auth import Keys
from pagewire.frontend.catalog import read_supplied_template
from pagewire.frontend.config import FrontendConfig, read_config
from pagewire.frontend.listen import Listener
from pagewire.frontend.openai.defaults import check_defaults
from pagewire.frontend.pool import EnginePool
from pagewire.frontend.reload import Reloader
from pagewire.frontend.state import FRONTEND, Frontend
from pagewire.frontend.template import TemplateError
from pagewire.frontend.templates.source import TemplateText
from pagewire.frontend.tls import tls_context
from pagewire.protocol.addresses import prepare_ipc_directories
from pagewire.protocol.logs import configure_logging
from pagewire.protocol.options import USAGE_ERROR

logger = logging.getLogger(__name__)

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the frontend; returns the exit status: 0 after a drain, 1 if it could not start, 2 for a wrong option."""
    config = read_config(argv)
    configure_logging(config.log_level, config.log_format)
    try:
        keys = Keys.read(config)
        check_defaults(config)
        template = read_supplied_template(config)
        prepare_ipc_directories(config.engine)
        tls = tls_context(config)
    except (TemplateError, ValueError) as error:
        print(f"pagewire-frontend: {error}", file=sys.stderr)
        return USAGE_ERROR
    _warn_of_risks(config, keys)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, keys, template, tls))


async def _serve(config: FrontendConfig, keys: Keys, template: TemplateText | None, tls: ssl.SSLContext | None) -> int:
    app = make_app(config, EnginePool(config.engine, f"frontend-{os.getpid()}"), keys, template)
    listener = Listener(app, config, tls=tls)
    stop = asyncio.Event()
    _handle_signals(Reloader(app[FRONTEND], tls), stop)
    try:
        await listener.open()
    except OSError as error:
        logger.error("cannot listen at %s: %s", _address(config), error)
        await listener.close()
        return 1
    logger.info("listening at %s, engines at %s", _address(config), ", ".join(config.engine))
    await stop.wait()
    await _drain(app[FRONTEND], listener)
    logger.info("stopped")
    if app[FRONTEND].grammars.running:
        # A check that ends while the interpreter is taken down would crash it.
        logging.shutdown()
        os._exit(0)
    return 0


def _handle_signals(reloader: Reloader, stop: asyncio.Event) -> None:
    """The first SIGTERM or SIGINT drains, the second one stops at once; SIGHUP reloads."""
    loop = asyncio.get_running_loop()

    def on_stop(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_stop, number)
    loop.add_signal_handler(signal.SIGHUP, reloader.start)


async def _drain(frontend: Frontend, listener: Listener) -> None:
    """Refuse what is new, let open requests finish for a while, then close what is left."""
    frontend.draining = True
    listener.stop_accepting()
    if frontend.inflight:
        logger.info("waiting up to %g s for %d open requests", frontend.config.shutdown_timeout, frontend.inflight)
    with suppress(TimeoutError):
        async with asyncio.timeout(frontend.config.shutdown_timeout):
            await frontend.idle.wait()
    if frontend.inflight:
        logger.warning("cutting off %d requests that are still open", frontend.inflight)
    await listener.close()


def _warn_of_risks(config: FrontendConfig, keys: Keys) -> None:
    if not config.uds and config.host not in _LOOPBACK and not keys.required:
        logger.warning("anyone who reaches %s may use this server: no --api-key is set", _address(config))
    if config.log_requests == "full":
        logger.warning("prompts are written to this log: --log-requests is full")


def _address(config: FrontendConfig) -> str:
    if config.uds:
        return f"unix:{config.uds}"
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{'https' if config.ssl_certfile else 'http'}://{host}:{config.port}"


if __name__ == "__main__":
    sys.exit(main())
