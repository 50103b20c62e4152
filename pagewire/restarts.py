"""When ``pagewire serve`` starts a crashed program again, and when it gives up."""

# A program that ran for longer than this was fine; its crash starts a new count.
QUICK_FAILURE_S = 60.0
MAX_QUICK_FAILURES = 5
FIRST_DELAY_S = 0.5
MAX_DELAY_S = 8.0


class RestartPolicy:
    """Counts the quick failures in a row of one program."""

    def __init__(self) -> None:
        """Begin with no failure."""
        self._quick_failures = 0

    def next_delay(self, lived: float) -> float | None:
        """Return the seconds to wait before the next start after a life of ``lived`` seconds; None is to give up."""
        if lived > QUICK_FAILURE_S:
            self._quick_failures = 0
        self._quick_failures += 1
        if self._quick_failures > MAX_QUICK_FAILURES:
            return None
        return min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** (self._quick_failures - 1))
