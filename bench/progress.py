"""Live progress: a bar on a terminal that has rich, plain lines anywhere else. Written to standard error."""

import sys
import time
from typing import Protocol

from msgspec import Struct

_PLAIN_INTERVAL_S = 5.0


class Snapshot(Struct, frozen=True):
    """How far a run is. ``total`` is None when a duration ends it; ``ttft_ms`` is the median so far."""

    label: str
    done: int
    total: int | None
    running: int
    errors: int
    output_rate: float
    ttft_ms: float | None

    def text(self) -> str:
        """Say it in one short line."""
        ttft = "" if self.ttft_ms is None else f", TTFT p50 {self.ttft_ms:.0f} ms"
        errors = f", {self.errors} errors" if self.errors else ""
        return f"{self.running} running, {self.output_rate:.0f} tokens/s{ttft}{errors}"


class Progress(Protocol):
    """Shows how a measurement goes."""

    def show(self, snapshot: Snapshot) -> None:
        """Show the state of the current run; called a few times a second."""

    def say(self, line: str) -> None:
        """Write a line that stays."""

    def close(self) -> None:
        """Leave the terminal clean."""


class QuietProgress:
    """Shows nothing."""

    def show(self, snapshot: Snapshot) -> None:
        """Show nothing."""

    def say(self, line: str) -> None:
        """Say nothing."""

    def close(self) -> None:
        """Do nothing."""


class PlainProgress:
    """Writes a line every few seconds."""

    def __init__(self) -> None:
        """Wait a few seconds before the first line."""
        self._next = time.monotonic() + _PLAIN_INTERVAL_S

    def show(self, snapshot: Snapshot) -> None:
        """Write a line if the last one is old enough."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PLAIN_INTERVAL_S
            total = "" if snapshot.total is None else f"/{snapshot.total}"
            self.say(f"{snapshot.label}: {snapshot.done}{total} done, {snapshot.text()}")

    def say(self, line: str) -> None:
        """Write the line."""
        print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Do nothing: every line is complete."""


class RichProgress:
    """A bar with counts; needs rich. Raises ``ImportError`` without it."""

    def __init__(self) -> None:
        """Put the bar on the terminal."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}"),
        )
        # The bar is drawn by a thread, which must not take the harness's time.
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True, refresh_per_second=2)
        self._task = self._bar.add_task("", total=None, text="")
        self._bar.start()

    def show(self, snapshot: Snapshot) -> None:
        """Move the bar."""
        self._bar.update(
            self._task,
            description=snapshot.label,
            completed=snapshot.done,
            total=snapshot.total,
            text=snapshot.text(),
        )

    def say(self, line: str) -> None:
        """Write the line above the bar."""
        self._bar.console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()


def choose_progress(*, quiet: bool) -> Progress:
    """Return the nicest progress this terminal and installation allow."""
    if quiet:
        return QuietProgress()
    if sys.stderr.isatty():
        try:
            return RichProgress()
        except ImportError:
            pass
    return PlainProgress()
