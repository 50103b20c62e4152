"""Random numbers that are a pure function of seed, position and token id.

No generator state exists, so a draw does not depend on the batch, the slot, a preemption or a restart. Seed and
position are mixed into 64 bits (the finalizer of SplitMix64, Steele et al. 2014); those key a multiply-xorshift hash
of a fixed random word per token. All of it is 32- and 64-bit integer arithmetic that wraps, hence the same everywhere.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pagewire.engine.sampling.primitives import Floats, Ints, on_device, where_at_least

Words = NDArray[np.int32]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_MULTIPLIER = 0x2C1B3C6D  # odd, from the 32-bit finalizers found by C. Wellons' search
_RANGE = float(2**32)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer: a bijection of 64-bit words in which every input bit changes half of the output."""
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    return words ^ (words >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class Keys:
    """What makes one draw different from another, [rows] each; ``odd`` is an odd multiplier."""

    flip: NDArray[np.uint32]
    odd: NDArray[np.uint32]

    def __getitem__(self, rows: slice | Ints) -> "Keys":
        """The keys of some rows."""
        return Keys(self.flip[rows], self.odd[rows])


def keys(seeds: NDArray[np.uint64], positions: Ints) -> Keys:
    """The keys of each row's draw. The seed is mixed first, so that neighbouring seeds (n > 1) share nothing."""
    mixed = _mix(_mix(seeds + _GOLDEN) + (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
    return Keys((mixed >> np.uint64(32)).astype(np.uint32), mixed.astype(np.uint32) | np.uint32(1))


class Noise:
    """Uniform 32-bit words, taken as signed integers, for every key and token id."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        """Compute the fixed word of every token."""
        mixed = _mix(np.arange(1, vocab_size + 1, dtype=np.uint64) * _GOLDEN)
        self._words = (mixed >> np.uint64(32)).astype(np.uint32)
        self._device_words = on_device(self._words.view(np.int32), device)

    def of_tokens(self, keys: Keys, rows: Ints, token_ids: Ints) -> Words:
        """The words of some tokens, [tokens], each under the key of its row."""
        words = (self._words[token_ids] ^ keys.flip[rows]) * np.uint32(_MULTIPLIER)
        words ^= words >> np.uint32(16)
        words *= keys.odd[rows]
        return words.view(np.int32)

    def of_all_tokens(self, keys: Keys) -> Tensor:
        """The same words for the whole vocabulary, on the device, int32 [rows, vocab]."""
        device = self._device_words.device
        flip, odd = (on_device(part.view(np.int32), device)[:, None] for part in (keys.flip, keys.odd))
        words = (self._device_words ^ flip).mul_(_MULTIPLIER)
        words.bitwise_xor_((words >> 16).bitwise_and_(0xFFFF))  # the mask makes the shift a logical one
        return words.mul_(odd)


def exponential(words: Words) -> Floats:
    """Standard exponential variates of hashed words: -log(1 - u) with u = (2^31 - 1/2 - word) / 2^32.

    Falls as the word rises, is never below u, and lies within [2^-33, 33 log 2].
    """
    uniform: Floats = (2.0**31 - 0.5 - words.astype(np.float64)) / _RANGE
    variates: Floats = -np.log1p(-uniform)
    return variates


def may_arrive_within(time: float, words: Tensor, rates: Tensor) -> tuple[Ints, Ints]:
    """Row and token id of every token with ``exponential(word) / rate <= time``, and of few others.

    ``words`` come from ``of_all_tokens``, ``rates`` are probabilities, float32 [rows, vocab]. The exponential is never
    below its u, so u <= time * rate is necessary.
    """
    margin = 1024.0  # covers float32 rounding, at most 256 for each of word and product
    lead = words.to(torch.float32).add_(rates, alpha=time * _RANGE)
    return where_at_least(lead, lead.new_full((1, 1), 2.0**31 - margin))
