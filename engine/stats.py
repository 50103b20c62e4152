"""The engine's one line of log every few seconds while it is busy."""

import logging

from pagewire.protocol.messages import Load

logger = logging.getLogger(__name__)

REPORT_INTERVAL_S = 5.0


class BatchLog:
    """Turns two successive loads into rates; says nothing while nothing happens."""

    def __init__(self) -> None:
        """Start with an idle engine."""
        self._last = Load()
        self._last_time: float | None = None

    def report(self, load: Load, now: float) -> None:
        """Log one line if ``REPORT_INTERVAL_S`` has passed and the engine worked since; ``now`` in seconds."""
        if self._last_time is not None and now - self._last_time < REPORT_INTERVAL_S:
            return
        if self._last_time is not None and load.steps > self._last.steps:
            logger.info("%s", describe(self._last, load, now - self._last_time))
        self._last, self._last_time = load, now


def describe(before: Load, after: Load, seconds: float) -> str:
    """What the engine did between two loads, in one line."""
    queries = after.prefix_queries - before.prefix_queries
    hits = after.prefix_hits - before.prefix_hits
    return (
        f"running {after.running}, waiting {after.waiting}, "
        f"prompt {(after.prompt_tokens - before.prompt_tokens) / seconds:.0f} tokens/s, "
        f"generation {(after.generation_tokens - before.generation_tokens) / seconds:.0f} tokens/s, "
        f"KV cache {after.kv_usage:.0%}, prefix hits {hits / queries if queries else 0:.0%}, "
        f"preemptions {after.preemptions - before.preemptions}"
    )
