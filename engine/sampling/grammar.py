"""Grammars in sampling: the tokens that each constrained row may take next, and all others made impossible.

The masks of a step are one array of bits. Beside a GPU the host's cores are free and fill it in parallel. Where they
run the model, one fills it: a mask takes 20 us as a rule, and waking another thread twice that or, on busy cores, a
time slice. There, a table turns each byte into eight terms, 0 or minus infinity, that are added to the logits: 10 us
for a row of 49,152 whatever the mask, where comparing and writing one by one takes up to ten times that.
"""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from llguidance import LLExecutor, LLMatcher
from numpy.typing import NDArray
from torch import Tensor

from pagewire.engine.sampling.primitives import Ints, on_device
from pagewire.protocol.messages import Sampling
from pagewire.protocol.panics import Panic, no_panics

logger = logging.getLogger(__name__)

Bits = NDArray[np.int32]

_EIGHT_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_TERMS_OF_BYTE = np.where(_EIGHT_BITS, np.float32(0), np.float32(-np.inf))  # [byte, bit]


class GrammarMasks:
    """The grammars of the slots. Their state belongs to the sequences, which advance it with each token they get.

    A grammar is complete when it allows an end token; where it allows nothing else, that is the next token, whatever
    the request says of a minimum length.
    """

    def __init__(self, vocab_size: int, max_slots: int, device: torch.device) -> None:
        """No slot is constrained until it is admitted with a grammar."""
        self._vocab_size = vocab_size
        self._device = device
        self._constrained = np.zeros(max_slots, np.bool_)
        self._matchers: dict[int, LLMatcher] = {}
        self._held: dict[int, Ints] = {}
        self._hold_until = np.zeros(max_slots, np.int64)
        self._executor: LLExecutor | None = None

    def admit(self, slot: int, matcher: LLMatcher | None, sampling: Sampling, eos_token_ids: Sequence[int]) -> None:
        """Start a slot over. Tokens that would end the text are held back as the request asks, if there are others."""
        self._constrained[slot] = matcher is not None
        self._matchers.pop(slot, None)
        if matcher:
            held = eos_token_ids if sampling.ignore_eos else (*sampling.stop_token_ids, *eos_token_ids)
            self._matchers[slot] = matcher
            self._held[slot] = np.array([token for token in held if 0 <= token < self._vocab_size], np.int64)
            self._hold_until[slot] = sampling.max_tokens if sampling.ignore_eos else sampling.min_tokens

    def constrained(self, slots: Ints) -> NDArray[np.bool_]:
        """Which rows have a grammar."""
        return self._constrained[slots]

    def apply(self, logits: Tensor, slots: Ints, positions: Ints) -> None:
        """Make what the grammars forbid impossible: in place, in float32 [rows, vocab]."""
        rows = np.flatnonzero(self._constrained[slots])
        bits = self._fill(slots[rows])
        for row in np.flatnonzero(positions[rows] < self._hold_until[slots[rows]]):
            _hold_back(bits[row], self._held[int(slots[rows[row]])])
        if self._device.type == "cpu":
            self._forbid_on_host(logits.numpy(), rows, bits)
        else:
            self._forbid_on_device(logits, rows, bits)

    def _fill(self, slots: Ints) -> Bits:
        """One row of bits per slot, [slots, words]; the lowest bit of a word is its first token.

        A matcher that has failed allows the end token only; whoever advances it learns of the failure. One that panics
        allows nothing, which ends its request as any row without a possible token does.
        """
        bits = np.empty((len(slots), -(-self._vocab_size // 32)), np.int32)
        matchers = [(self._matchers[slot], row) for row, slot in enumerate(slots.tolist())]
        if self._device.type == "cpu":
            for matcher, row in matchers:
                _fill_row(matcher, bits[row])
            return bits
        if self._executor is None:
            self._executor = LLExecutor()
        try:
            with no_panics():
                self._executor.unsafe_compute_mask_ptr(matchers, bits.ctypes.data, bits.strides[0], len(bits))
        except Panic:
            # One by one, to find whose it was.
            for matcher, row in matchers:
                _fill_row(matcher, bits[row])
        return bits

    def _forbid_on_host(self, logits: NDArray[np.float32], rows: Ints, bits: Bits) -> None:
        as_bytes = bits.view(np.uint8)
        for place, row in enumerate(rows):
            terms = _TERMS_OF_BYTE.take(as_bytes[place], axis=0)
            logits[row] += terms.reshape(-1)[: self._vocab_size]

    def _forbid_on_device(self, logits: Tensor, rows: Ints, bits: Bits) -> None:
        words = on_device(bits, self._device)[:, :, None]
        shifts = torch.arange(32, dtype=torch.int32, device=self._device)
        forbidden = ((words >> shifts) & 1).view(len(rows), -1)[:, : self._vocab_size] == 0
        at = on_device(rows, self._device)
        logits[at] = logits[at].masked_fill_(forbidden, -torch.inf)


def _fill_row(matcher: LLMatcher, bits: Bits) -> None:
    try:
        with no_panics():
            matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
    except Panic:
        logger.exception("a grammar failed; its request ends")
        bits[:] = 0


def _hold_back(bits: Bits, token_ids: Ints) -> None:
    """Take tokens out of a mask [words], unless nothing would be left."""
    words, places = token_ids >> 5, np.uint32(1) << (token_ids & 31).astype(np.uint32)
    if not (bits.view(np.uint32)[words] & places).any():
        return  # the usual case: the grammar is not complete
    without = bits.view(np.uint32).copy()
    np.bitwise_and.at(without, words, ~places)
    if without.any():
        bits[:] = without.view(np.int32)
