"""``best_of``: more choices are generated than answered, and the likeliest are kept."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.openai.choices import Collected
from pagewire.frontend.openai.errors import invalid
from pagewire.frontend.openai.respond import Shape
from pagewire.frontend.openai.schema import CompletionRequest
from pagewire.protocol.messages import Delta


def generated_choices(completion: CompletionRequest, config: FrontendConfig) -> int:
    """How many choices to generate for each prompt; raises ApiError for a ``best_of`` that makes no sense."""
    if completion.best_of is None or completion.best_of == completion.n:
        return completion.n
    if not completion.n <= completion.best_of <= config.max_n:
        expected = f"'n' ({completion.n}) to {config.max_n}"
        raise invalid(f"Invalid value for 'best_of': expected {expected}, got {completion.best_of}.", "best_of")
    if completion.stream:
        raise invalid("'best_of' is not available when 'stream' is true.", "best_of")
    return completion.best_of


class BestShape:
    """Shows the best ``kept`` of every ``generated`` choices, those of the highest mean log-probability first."""

    def __init__(self, shape: Shape, *, kept: int, generated: int):
        """``shape`` shows what is kept; the choices must come with their log-probabilities."""
        self._shape = shape
        self._kept = kept
        self._generated = generated

    def envelope(self, *, stream: bool) -> dict[str, Any]:
        """The fields around the choices."""
        return self._shape.envelope(stream=stream)

    def heading(self) -> dict[str, Any]:
        """Never streamed."""
        return {}

    def opening(self) -> Iterable[bytes]:
        """Never streamed."""
        return ()

    def pieces(self, index: int, delta: Delta) -> Sequence[bytes]:
        """Never streamed."""
        return ()

    def whole(self, choices: Sequence[Collected]) -> dict[str, Any]:
        """The fields of a plain answer with the choices that are kept."""
        best: list[Collected] = []
        for first in range(0, len(choices), self._generated):
            of_prompt = choices[first : first + self._generated]
            best += sorted(of_prompt, key=mean_logprob, reverse=True)[: self._kept]
        return self._shape.whole(best)


def mean_logprob(choice: Collected) -> float:
    """The mean log-probability of a choice's tokens; without any it is the worst."""
    if not choice.logprobs:
        return -math.inf
    return math.fsum(entry.logprob for entry in choice.logprobs) / len(choice.logprobs)
