"""Counting tokens of a request with several prompts and choices."""

from collections.abc import Callable, Sequence
from typing import Any

from pagewire.protocol.messages import Delta


class UsageCounter:
    """Running totals of one request: each prompt counts once, the completions of all its choices are summed."""

    def __init__(self, prompt_lengths: Sequence[int], n: int, reasoning: Callable[[], int] | None = None):
        """``n`` choices per prompt; choice ``i`` belongs to prompt ``i // n``.

        ``reasoning`` tells how many tokens were reasoning so far; None leaves the count out.
        """
        self._n = n
        self._reasoning = reasoning
        self.prompt_tokens = sum(prompt_lengths)
        self._completion = [0] * (len(prompt_lengths) * n)
        self._cached = [0] * len(prompt_lengths)

    @property
    def completion_tokens(self) -> int:
        """Tokens generated so far."""
        return sum(self._completion)

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed again."""
        return sum(self._cached)

    def add(self, choice: int, delta: Delta) -> None:
        """Count a delta; the finishing one brings the engine's exact numbers."""
        self._completion[choice] += len(delta.ids)
        if delta.finish:
            usage = delta.finish.usage
            self._completion[choice] = usage.completion
            # The other choices find the prompt cached by the first, which says nothing about the request.
            if choice % self._n == 0:
                self._cached[choice // self._n] = usage.cached

    def as_json(self) -> dict[str, Any]:
        """OpenAI's ``usage`` object."""
        completion = self.completion_tokens
        usage = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }
        if self._reasoning is not None:
            usage["completion_tokens_details"] = {"reasoning_tokens": self._reasoning()}
        return usage
