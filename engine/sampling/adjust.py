"""Changes to the logits of single tokens: allow-lists, bad words, logit_bias, min_tokens and the penalties.

All of them touch few tokens (those biased, those that stop, those seen), so each slot keeps short lists of ids and a
batch edits exactly these entries. The order is that of vLLM: allow-list and bad words (``permissions``), bias, the
mask of min_tokens, repetition penalty, then frequency and presence penalty.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pagewire.engine.sampling.permissions import Permissions
from pagewire.engine.sampling.primitives import on_device
from pagewire.protocol.messages import Sampling


class TokenCounts:
    """The distinct tokens of one request and how often each was generated, in arrays that grow by doubling.

    A token that only occurs in the prompt has count 0: the repetition penalty applies to it, the others do not.
    """

    def __init__(self, prompt: NDArray[np.int64], output: NDArray[np.int64]) -> None:
        """Count the ids of a request that may already have output."""
        ids, counts = np.unique(output, return_counts=True)
        prompt_only = np.setdiff1d(prompt, ids)
        self._size = len(ids) + len(prompt_only)
        capacity = max(64, 2 * self._size)
        self._ids = np.zeros(capacity, np.int64)
        self._counts = np.zeros(capacity, np.int64)
        self._ids[: self._size] = np.concatenate([ids, prompt_only])
        self._counts[: len(ids)] = counts
        self._place = {int(token): place for place, token in enumerate(self._ids[: self._size])}

    @property
    def ids(self) -> NDArray[np.int64]:
        """The distinct tokens [seen]."""
        return self._ids[: self._size]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each of ``ids`` was generated [seen]."""
        return self._counts[: self._size]

    def add(self, token: int) -> None:
        """Count one generated token."""
        place = self._place.get(token)
        if place is None:
            place = self._size
            if place == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._place[token] = place
            self._ids[place] = token
            self._size += 1
        self._counts[place] += 1


@dataclass(frozen=True, slots=True)
class _Penalties:
    repetition: float
    presence: float
    frequency: float
    seen: TokenCounts


@dataclass(frozen=True, slots=True)
class _Bias:
    ids: NDArray[np.int64]
    values: NDArray[np.float32]


class Adjustments:
    """What to change in the logits of each slot before anything is drawn from them."""

    def __init__(self, vocab_size: int, max_slots: int, device: torch.device) -> None:
        """Make room for ``max_slots`` requests; nothing of the vocabulary's size is allocated."""
        self._vocab_size = vocab_size
        self._device = device
        self._always = np.zeros(max_slots, np.bool_)  # slots with a limit, a bias or a penalty
        self._min_tokens = np.zeros(max_slots, np.int64)
        self._permissions = Permissions(vocab_size, device)
        self._bias: dict[int, _Bias] = {}
        self._stop_ids: dict[int, NDArray[np.int64]] = {}
        self._penalties: dict[int, _Penalties] = {}

    def admit(
        self, slot: int, sampling: Sampling, prompt: Sequence[int], output: Sequence[int], stop_ids: Sequence[int]
    ) -> None:
        """Start a slot over. ``stop_ids`` are the tokens that may not come among the first ``min_tokens``."""
        for state in (self._bias, self._stop_ids, self._penalties):
            state.pop(slot, None)
        is_limited = self._permissions.admit(slot, sampling, output)
        if sampling.logit_bias:
            self._bias[slot] = self._known_bias(sampling.logit_bias)
        self._min_tokens[slot] = sampling.min_tokens if stop_ids else 0
        if self._min_tokens[slot]:
            self._stop_ids[slot] = self._known(stop_ids)
        repetition, presence, frequency = (
            sampling.repetition_penalty,
            sampling.presence_penalty,
            sampling.frequency_penalty,
        )
        if repetition != 1.0 or presence or frequency:
            seen = TokenCounts(self._known(prompt if repetition != 1.0 else ()), self._known(output))
            self._penalties[slot] = _Penalties(repetition, presence, frequency, seen)
        self._always[slot] = is_limited or slot in self._bias or slot in self._penalties

    def append(self, slots: Sequence[int], token_ids: Sequence[int]) -> None:
        """Take one generated token per slot, where a penalty or a bad word wants to know."""
        self._permissions.append(slots, token_ids)
        if self._penalties:
            for slot, token in zip(slots, token_ids, strict=True):
                if penalties := self._penalties.get(slot):
                    penalties.seen.add(token)

    def needed(self, slots: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows have logits to change."""
        return self._always[slots] | (positions < self._min_tokens[slots])

    def apply(self, logits: Tensor, slots: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        """Change the logits, float32 [rows, vocab] contiguous, in place."""
        self._permissions.apply(logits, slots)
        flat = logits.view(-1)
        held_back = positions < self._min_tokens[slots]
        rows = [(row, int(slot)) for row, slot in enumerate(slots)]
        self._apply_bias(flat, [(row, self._bias[slot]) for row, slot in rows if slot in self._bias])
        self._apply_mask(flat, [(row, self._stop_ids[slot]) for row, slot in rows if held_back[row]])
        self._apply_penalties(flat, [(row, self._penalties[slot]) for row, slot in rows if slot in self._penalties])

    def _apply_bias(self, flat: Tensor, rows: list[tuple[int, _Bias]]) -> None:
        if rows:
            at = self._places([(row, bias.ids) for row, bias in rows])
            flat[at] += on_device(np.concatenate([bias.values for _, bias in rows]), self._device)

    def _apply_mask(self, flat: Tensor, rows: list[tuple[int, NDArray[np.int64]]]) -> None:
        if rows:
            flat[self._places(rows)] = -torch.inf

    def _apply_penalties(self, flat: Tensor, rows: list[tuple[int, _Penalties]]) -> None:
        """Repetition divides positive logits and multiplies negative ones; the other two are subtracted."""
        if not rows:
            return
        at = self._places([(row, penalties.seen.ids) for row, penalties in rows])
        repetition = np.concatenate([np.full(len(each.seen.ids), each.repetition, np.float32) for _, each in rows])
        subtracted = np.concatenate(
            [each.frequency * each.seen.counts + each.presence * (each.seen.counts > 0) for _, each in rows]
        ).astype(np.float32)
        factor = on_device(repetition, self._device)
        values = flat[at]
        values = torch.where(values > 0, values / factor, values * factor)
        flat[at] = values - on_device(subtracted, self._device)

    def _places(self, rows: list[tuple[int, NDArray[np.int64]]]) -> Tensor:
        """Indices into the flat logits of each row's tokens."""
        return on_device(np.concatenate([ids + row * self._vocab_size for row, ids in rows]), self._device)

    def _known(self, token_ids: Sequence[int]) -> NDArray[np.int64]:
        """The ids that have a logit, each once for masks (ids outside the vocabulary cannot be generated)."""
        ids = np.asarray(token_ids, np.int64)
        return ids[(ids >= 0) & (ids < self._vocab_size)]

    def _known_bias(self, bias: dict[int, float]) -> _Bias:
        known = {token: value for token, value in bias.items() if 0 <= token < self._vocab_size}
        return _Bias(np.fromiter(known.keys(), np.int64), np.fromiter(known.values(), np.float32))
