"""Which tokens a slot may generate at all: allow-lists and bad words.

A bad word is a sequence of tokens; its last one is banned while those before it are the newest of the output, so the
word as a whole cannot come about. Both are masks over few tokens and come before every other change to the logits.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pagewire.engine.sampling.primitives import on_device
from pagewire.protocol.messages import Sampling


class BadWords:
    """The bad words of one request, and the end of its output as far as it matters."""

    def __init__(self, words: Sequence[Sequence[int]], output: Sequence[int]) -> None:
        """``output`` was generated before the request lost its slot; nothing for a new one."""
        self._words = [(tuple(word[:-1]), word[-1]) for word in words]
        self._reach = max(len(beginning) for beginning, _ in self._words)
        self._tail = list(output[-self._reach :]) if self._reach else []

    def append(self, token: int) -> None:
        """Note a generated token."""
        self._tail = [*self._tail, token][-self._reach :] if self._reach else []

    def banned(self) -> list[int]:
        """The tokens that would complete a bad word now."""
        tail = tuple(self._tail)
        return [last for beginning, last in self._words if not beginning or tail[-len(beginning) :] == beginning]


class Permissions:
    """The allow-lists and bad words of all slots."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        """Every slot may generate everything until it is admitted with something else."""
        self._vocab_size = vocab_size
        self._device = device
        self._allowed: dict[int, NDArray[np.int64]] = {}
        self._bad_words: dict[int, BadWords] = {}

    def admit(self, slot: int, sampling: Sampling, output: Sequence[int]) -> bool:
        """Start a slot over; says whether it is limited in any way."""
        self._allowed.pop(slot, None)
        self._bad_words.pop(slot, None)
        if sampling.allowed_token_ids:
            self._allowed[slot] = self._known(sampling.allowed_token_ids)
        words = [word for word in sampling.bad_words if word and 0 <= word[-1] < self._vocab_size]
        if words:
            self._bad_words[slot] = BadWords(words, output)
        return slot in self._allowed or slot in self._bad_words

    def append(self, slots: Sequence[int], token_ids: Sequence[int]) -> None:
        """Note one generated token per slot, where a bad word may have begun."""
        if self._bad_words:
            for slot, token in zip(slots, token_ids, strict=True):
                if words := self._bad_words.get(slot):
                    words.append(token)

    def apply(self, logits: Tensor, slots: NDArray[np.int64]) -> None:
        """Set what must not come in ``logits``, float32 [rows, vocab] contiguous, to minus infinity."""
        if not self._allowed and not self._bad_words:
            return
        rows = [(row, int(slot)) for row, slot in enumerate(slots)]
        self._keep_allowed(logits, [(row, self._allowed[slot]) for row, slot in rows if slot in self._allowed])
        banned = [(row, self._bad_words[slot].banned()) for row, slot in rows if slot in self._bad_words]
        if places := [row * self._vocab_size + token for row, tokens in banned for token in tokens]:
            logits.view(-1)[on_device(np.array(places), self._device)] = -torch.inf

    def _keep_allowed(self, logits: Tensor, rows: list[tuple[int, NDArray[np.int64]]]) -> None:
        if rows:
            flat = logits.view(-1)
            at = on_device(np.concatenate([ids + row * self._vocab_size for row, ids in rows]), self._device)
            kept = flat[at]
            logits[on_device(np.array([row for row, _ in rows]), self._device)] = -torch.inf
            flat[at] = kept

    def _known(self, token_ids: Sequence[int]) -> NDArray[np.int64]:
        ids = np.unique(np.asarray(token_ids, np.int64))
        return ids[(ids >= 0) & (ids < self._vocab_size)]
