"""Random numbers that are a pure function of seed, position and token id.

No generator state exists, so a draw does not depend on the batch, the slot, a preemption or a restart. Seed and
position are mixed into 64 bits on the host (the finalizer of SplitMix64, Steele et al. 2014); those key a
multiply-xorshift hash of a fixed random word per token. Everything is integer arithmetic that wraps, hence the same
on every device.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pagewire.engine.sampling.primitives import on_device

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_MULTIPLIER = 0x2C1B3C6D  # odd, from the 32-bit finalizers found by C. Wellons' search
_HALF_RANGE = 2**31
_RANGE = 2**32


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer: a bijection of 64-bit words in which every input bit changes half of the output."""
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    return words ^ (words >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class Keys:
    """What makes one draw different from another, int32 [rows, 1] each; ``odd`` is an odd multiplier."""

    flip: Tensor
    odd: Tensor

    def of(self, rows: Tensor) -> "Keys":
        """The keys of some rows, flat [len(rows)], to hash one token for each."""
        return Keys(self.flip[rows, 0], self.odd[rows, 0])

    def select(self, rows: Tensor) -> "Keys":
        """The keys of some rows, still [rows, 1]."""
        return Keys(self.flip[rows], self.odd[rows])


class Noise:
    """Uniform 32-bit words for (seed, position, token id)."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        """Compute the fixed word of every token."""
        words = _mix(np.arange(1, vocab_size + 1, dtype=np.uint64) * _GOLDEN)
        self._token_words = torch.from_numpy((words >> np.uint64(32)).astype(np.uint32).view(np.int32)).to(device)
        self._device = device

    def keys(self, seeds: NDArray[np.uint64], positions: NDArray[np.int64]) -> Keys:
        """The keys of each row's draw. The seed is mixed first, so neighbours (n > 1) share nothing."""
        mixed = _mix(_mix(seeds + _GOLDEN) + (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
        halves = on_device(mixed.view(np.int32).reshape(-1, 2), self._device)  # [rows, 2]
        return Keys(halves[:, :1], halves[:, 1:] | 1)

    def every_token(self, keys: Keys) -> Tensor:
        """The words of the whole vocabulary, int32 [rows, vocab]."""
        return _hash(self._token_words ^ keys.flip, keys.odd)

    def of_tokens(self, keys: Keys, token_ids: Tensor) -> Tensor:
        """One word for each pair of (flat) key and token id, int32 [pairs]."""
        return _hash(self._token_words[token_ids] ^ keys.flip, keys.odd)


def _hash(words: Tensor, odd: Tensor) -> Tensor:
    """Mix keyed words in place: multiply, fold the good high half into the low one, multiply by the second key."""
    words.mul_(_MULTIPLIER)
    words.bitwise_xor_((words >> 16).bitwise_and_(0xFFFF))  # the mask makes the shift a logical one
    return words.mul_(odd)


def exponential(words: Tensor) -> Tensor:
    """Standard exponential variates, float64, of hashed words: -log(1 - u), u = (word as unsigned + 1/2) / 2^32.

    Rises with the word, is never below u, and lies within [2^-33, 33 log 2].
    """
    uniform = (words.to(torch.float64) + (_HALF_RANGE + 0.5)) / _RANGE
    return -torch.log1p(-uniform)


def lead_over(words: Tensor, rates: Tensor, time: float) -> Tensor:
    """A float32 tensor [rows, vocab] that is >= 0 wherever ``exponential(word) / rate <= time``, and seldom elsewhere.

    The exponential is never below its uniform u, so u <= time * rate is necessary. ``rates`` are probabilities.
    """
    margin = 1024.0  # covers float32 rounding of the words, whose spacing is at most 256
    lead = words.to(torch.float32).neg_()
    return lead.add_(rates, alpha=time * _RANGE).add_(margin - _HALF_RANGE)
