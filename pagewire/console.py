"""What ``pagewire serve`` shows: whole lines of several writers, and one line of progress below them."""

import sys
import time
from typing import TextIO

# Where the stream is a file, progress is a line of its own, and seldom.
PLAIN_PROGRESS_INTERVAL_S = 5.0

_CLEAR_LINE = "\r\x1b[K"


class Console:
    """Writes to one stream. On a terminal the progress line is rewritten in place and always the last one."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to ``stream``, by default standard error."""
        self._stream = stream or sys.stderr
        self._on_terminal = self._stream.isatty()
        self._progress = ""
        self._last_plain_progress = time.monotonic()

    def line(self, text: str) -> None:
        """Write one line (or several), above the progress line if there is one."""
        if self._progress:
            self._stream.write(f"{_CLEAR_LINE}{text}\n{self._progress}")
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def progress(self, text: str) -> None:
        """Show how far something has come; replaces the progress shown before."""
        if self._on_terminal:
            self._progress = text
            self._stream.write(f"{_CLEAR_LINE}{text}")
            self._stream.flush()
        elif time.monotonic() - self._last_plain_progress >= PLAIN_PROGRESS_INTERVAL_S:
            self._last_plain_progress = time.monotonic()
            self.line(text)

    def end_progress(self) -> None:
        """Remove the progress line."""
        if self._progress:
            self._progress = ""
            self._stream.write(_CLEAR_LINE)
            self._stream.flush()
