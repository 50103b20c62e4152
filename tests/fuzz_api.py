"""Fuzzes the whole HTTP interface against its own OpenAPI document, with a scripted engine behind it.

    python -m tests.fuzz_api SCHEMATHESIS [EXAMPLES] [OPTIONS OF SCHEMATHESIS]

``SCHEMATHESIS`` is the program, from an environment of its own; ``EXAMPLES`` is the number per operation. No request
may lead to a 5xx but the one for a time limit that has passed, and every answer, errors included, must be one that the
document describes.
"""

import asyncio
import os
import struct
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from pagewire.frontend.app import make_app
from pagewire.frontend.auth import Keys
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.listen import Listener
from pagewire.frontend.pool import EnginePool
from pagewire.frontend.state import FRONTEND
from tests.fake_engine import FakeEngine, toy_model, until

DEFAULT_EXAMPLES = 2000
CONFIG_FILE = "schemathesis.toml"
# A client may set a time limit that nothing can keep.
CONFIG = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 504]
"""
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
)


async def fuzz(directory: Path, schemathesis: str, examples: int, options: list[str]) -> int:
    """Serve, run Schemathesis to its end, return its exit status; ``directory`` is empty."""
    async with AsyncExitStack() as stack:
        engine = FakeEngine(
            f"ipc://{directory}/engine", model=toy_model(embedding_size=3), embedding=struct.pack("<3f", 1, 0, 0)
        )
        await stack.enter_async_context(engine.serving())
        config = FrontendConfig(engine=(engine.address,), log_level="error")
        app = make_app(config, EnginePool(config.engine, "fuzz"), Keys.read(config))
        listener = Listener(app, config, port=0)
        await listener.open()
        stack.push_async_callback(listener.close)
        await until(lambda: app[FRONTEND].not_ready() is None)
        process = await asyncio.create_subprocess_exec(
            *(
                schemathesis,
                "--config-file",
                str(directory / CONFIG_FILE),
                "run",
                f"http://127.0.0.1:{listener.port}/openapi.json",
            ),
            *("--phases", "coverage,fuzzing", "--checks", ",".join(CHECKS), "--max-examples", str(examples)),
            *("--suppress-health-check", "all", "--warnings", "off", "--continue-on-failure", *options),
            cwd=directory,  # it leaves files
        )
        return await process.wait()


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    examples = int(arguments[1]) if len(arguments) > 1 else DEFAULT_EXAMPLES
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / CONFIG_FILE).write_text(CONFIG, "utf-8")
        return asyncio.run(fuzz(directory, os.path.abspath(arguments[0]), examples, arguments[2:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
