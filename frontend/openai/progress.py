"""What is measured of a request while its deltas pass by."""

import time
from collections.abc import Sequence

from pagewire.frontend.metrics import ModelMetrics
from pagewire.protocol.messages import Delta, Finish


class Progress:
    """Times of one request's choices, observed into the model's metrics; one clock reading per batch of deltas."""

    def __init__(self, metrics: ModelMetrics, arrived: float, num_choices: int):
        """``arrived`` is when the HTTP request came, in ``time.perf_counter`` seconds."""
        self._metrics = metrics
        self._arrived = arrived
        self._first: list[float | None] = [None] * num_choices
        self._last = [arrived] * num_choices
        self._open = num_choices
        self.finish_reasons: list[str] = []
        self.first_token: float | None = None

    def observe(self, batch: Sequence[tuple[int, Delta]]) -> None:
        """Take the deltas that have just come."""
        now = time.perf_counter()
        for choice, delta in batch:
            if delta.ids:
                self._tokens(choice, len(delta.ids), now)
            if delta.finish:
                self._finish(choice, delta.finish, now)

    def ended(self, *, failed: bool) -> None:
        """Count the choices that will not finish any more: they failed, or their client has gone."""
        if self._open:
            reason = "error" if failed else "abort"
            self._metrics.finished[reason].inc(self._open)
            self.finish_reasons += [reason] * self._open
            self._open = 0

    def summary(self) -> str:
        """One line for the log: how the choices ended, and how long the first token took."""
        reasons = ",".join(sorted(set(self.finish_reasons)))
        waited = f" ttft={self.first_token - self._arrived:.3f}s" if self.first_token is not None else ""
        return f"finish={reasons}{waited}"

    def _tokens(self, choice: int, count: int, now: float) -> None:
        if self._first[choice] is None:
            self._first[choice] = now
            self._metrics.time_to_first_token.observe(now - self._arrived)
            if self.first_token is None:
                self.first_token = now
        else:
            # Tokens that came together are observed once, with the time each of them took.
            self._metrics.inter_token_latency.observe((now - self._last[choice]) / count)
        self._last[choice] = now

    def _finish(self, choice: int, finish: Finish, now: float) -> None:
        metrics, usage, first = self._metrics, finish.usage, self._first[choice]
        self._open -= 1
        self.finish_reasons.append(finish.reason)
        metrics.finished[finish.reason].inc()
        metrics.e2e_latency.observe(now - self._arrived)
        metrics.queue_time.observe(usage.queued_ms / 1000)
        metrics.prefill_time.observe(usage.prefill_ms / 1000)
        metrics.prompt_tokens.observe(usage.prompt)
        metrics.generation_tokens.observe(usage.completion)
        if first is not None:
            metrics.decode_time.observe(now - first)
