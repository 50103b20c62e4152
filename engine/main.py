"""``pagewire-engine``: load a model, bind the endpoint, serve until told to stop."""

import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType

import zmq

from pagewire.engine.config import EngineConfig, read_config
from pagewire.engine.endpoint import prepare_endpoint
from pagewire.engine.server import Server
from pagewire.protocol.addresses import AddressError
from pagewire.protocol.logs import configure_logging
from pagewire.protocol.panics import no_panics

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the engine; returns the exit status: 0 after a drain, 130 after Ctrl-C while loading, 1 for any failure."""
    config = read_config(argv)
    configure_logging(config.log_level, config.log_format)
    try:
        prepare_endpoint(config.endpoint)
        # Bound before the model is loaded: a taken address shows at once, and early frontends wait in the queue.
        server = Server(config.endpoint)
    except (AddressError, zmq.ZMQError) as error:
        logger.error("cannot listen at %s: %s", config.endpoint, error)
        return 1
    try:
        return _serve(config, server)
    except KeyboardInterrupt:  # while the model is loaded; later, a signal drains
        return 128 + signal.SIGINT
    finally:
        server.close()


def _serve(config: EngineConfig, server: Server) -> int:
    # torch and the model code take a second to import; options and addresses are checked before that.
    from pagewire.engine.build import build_engine
    from pagewire.engine.loop import EngineLoop
    from pagewire.engine.models.errors import ModelError

    started = time.monotonic()
    try:
        with no_panics():
            engine = build_engine(config)
    except ModelError as error:
        logger.error("%s", error)
        return 1
    except Exception as error:  # files are other people's: what a broken one raises has no end of kinds
        logger.error("cannot load %s: %s: %s", config.model, type(error).__name__, error)
        logger.debug("where it failed", exc_info=True)
        return 1
    loop = EngineLoop(server, engine.core, engine.model, engine.limits, secrets.token_hex(4))
    _drain_on_signals(loop.drain, config.shutdown_timeout)
    logger.info("ready at %s after %.1f s", config.endpoint, time.monotonic() - started)
    try:
        loop.run()
    except Exception:  # the loop has logged it and told the frontends
        return 1
    logger.info("stopped")
    return 0


def _drain_on_signals(drain: Callable[[float], None], grace_s: float) -> None:
    """The first SIGTERM or SIGINT drains, the second one stops at once."""
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        drain(grace_s)

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


if __name__ == "__main__":
    sys.exit(main())
