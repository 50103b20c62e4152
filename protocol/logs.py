"""Logging set-up of both programs: one handler on standard error, as lines for people or as JSON objects.

Code logs through ``logging.getLogger(__name__)`` and never at a rate that depends on time alone: an idle program is
quiet. A line that belongs to a request carries its id, either from ``extra={"request_id": ...}`` or from the task it is
logged in (``current_request_id``).
"""

import json
import logging
import sys
import time
from contextvars import ContextVar
from typing import Any

# Set by the frontend for the task that handles a request.
current_request_id: ContextVar[str | None] = ContextVar("current_request_id", default=None)

_LIBRARIES = (
    "aiohttp.access",
    "asyncio",
    "filelock",
    "httpcore",
    "httpx",
    "huggingface_hub",
    "transformers",
    "urllib3",
)


def configure_logging(level: str, format: str) -> None:
    """Send log records of at least ``level`` (debug, info, warning, error) to standard error.

    ``format`` is ``text`` or ``json``. Libraries only warn. Calling it again replaces the earlier set-up.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


class TextFormatter(logging.Formatter):
    """``14:03:07 info frontend.app: message [request abc]``, with the trace of an exception indented below.

    What peers and clients sent may be part of it, so a record can neither end its line nor control the terminal.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format the line itself, without a trace; local time to the second, for someone at the machine."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        request_id = _request_id(record)
        suffix = f" [request {request_id}]" if request_id else ""
        return f"{clock} {record.levelname.lower()} {_short(record.name)}: {_printable(record.message + suffix)}"

    def formatException(self, ei: Any) -> str:
        """Indent the trace: an exception's message may have lines that look like those of a log."""
        return "\n".join(f"    {_printable(line)}" for line in super().formatException(ei).split("\n"))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC, ISO 8601), level, logger, message, and request_id and exception if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record as one line."""
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{clock}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": _short(record.name),
            "message": record.getMessage(),
        }
        request_id = _request_id(record)
        if request_id:
            entry["request_id"] = request_id
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def _printable(text: str) -> str:
    """The text with everything escaped that is no visible character or space, as in Python's literals."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _request_id(record: logging.LogRecord) -> str | None:
    own: str | None = getattr(record, "request_id", None)
    return own or current_request_id.get()


def _short(name: str) -> str:
    """``pagewire.engine.loop`` is ``engine.loop``; a program run as a module calls its main module ``__main__``."""
    return "main" if name == "__main__" else name.removeprefix("pagewire.")
