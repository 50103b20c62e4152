"""Embeddings: from the final hidden states of a prompt's tokens to one vector of length 1."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pagewire.engine.plan import Row

Pooling = Literal["last", "mean"]


@dataclass(frozen=True, slots=True)
class Part:
    """The tokens of one plan row that count for its request's embedding, as indices of the step's tokens."""

    row: int
    slot: int
    tokens: range
    is_last: bool  # the prompt ends here


class Pooler:
    """Sums hidden states over the steps of a prompt, for the slots whose requests want an embedding.

    A mean needs no division, because only the direction of the sum is kept; ``last`` is a sum over one token. Sums are
    float64, so that how a prompt was cut into steps does not show.
    """

    def __init__(self, pooling: Pooling) -> None:
        """No slot wants anything until it is admitted."""
        self.pooling = pooling
        self._wanted: set[int] = set()
        self._sums: dict[int, Tensor] = {}  # by slot: float64 [hidden]

    def admit(self, slot: int, wanted: bool) -> None:
        """Start a slot over: its request's prompt is computed from the first token that counts."""
        self._sums.pop(slot, None)
        if wanted:
            self._wanted.add(slot)
        else:
            self._wanted.discard(slot)

    def wants(self, slot: int) -> bool:
        """Whether the slot's request gets an embedding instead of tokens."""
        return slot in self._wanted

    def parts(self, rows: Sequence[Row], query_starts: NDArray[np.int64]) -> list[Part]:
        """What counts among a step's tokens; row i begins at ``query_starts[i]``."""
        if not self._wanted:
            return []
        parts = []
        for number, row in enumerate(rows):
            # On a device that runs ahead, a row past the prompt may be planned before the host has seen the end.
            end = min(row.start + row.count, row.request.num_prompt)
            if row.slot not in self._wanted or end <= row.start:
                continue
            is_last = end == row.request.num_prompt
            first = row.start if self.pooling == "mean" else row.request.num_prompt - 1
            base = int(query_starts[number]) - row.start
            if first < end:
                parts.append(Part(number, row.slot, range(base + first, base + end), is_last))
        return parts

    def add(self, parts: Sequence[Part], hidden: Tensor) -> list[tuple[int, Tensor]]:
        """Add the hidden states of all parts' tokens, [tokens, hidden] in that order.

        Returns the plan rows whose prompts are complete, each with its embedding, float32 [hidden] of length 1.
        """
        complete: list[tuple[int, Tensor]] = []
        for part, states in zip(parts, torch.split(hidden, [len(part.tokens) for part in parts]), strict=True):
            total = states.double().sum(0)
            if part.slot in self._sums:
                total += self._sums.pop(part.slot)
            if part.is_last:
                complete.append((part.row, torch.nn.functional.normalize(total, dim=0).float()))
            else:
                self._sums[part.slot] = total
        return complete
