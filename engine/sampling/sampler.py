"""Turns a step's logits into tokens.

Order for each row, as in vLLM and transformers:

1. the mask of the grammar (``grammar``), logit_bias, the mask of min_tokens, repetition penalty, frequency and
   presence penalty (``adjust``)
2. greedy rows: the largest logit, the lowest id among equals
3. other rows: temperature, top_k, top_p, min_p (``truncate``), then a draw with noise that is a function of seed,
   position and token id (``draw``, ``noise``)
4. log-probabilities, of the logits as the model gave them (``logprobs``)

Rows are grouped by what they need and each group is computed at once; a group that is empty costs nothing. No row's
result depends on another row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from llguidance import LLMatcher
from torch import Tensor

from pagewire.engine.sampling.adjust import Adjustments
from pagewire.engine.sampling.draw import draw_any, draw_kept
from pagewire.engine.sampling.grammar import GrammarMasks
from pagewire.engine.sampling.logprobs import Logprobs, token_logprobs
from pagewire.engine.sampling.noise import Noise, keys
from pagewire.engine.sampling.primitives import IN_CACHE, IN_MEMORY, Ints, argmax, on_device, passes
from pagewire.engine.sampling.truncate import Limits, kept_tokens
from pagewire.protocol.messages import GREEDY_BELOW, Sampling


@dataclass(frozen=True, slots=True)
class Sampled:
    """The tokens of one step, on the device.

    ``logprobs`` covers ``logprob_rows`` (rows of the batch that asked, rising). A row with ``finite`` False had NaN or
    infinite logits: its token means nothing and its request must end with an error.
    """

    token_ids: Tensor  # int64 [rows]
    finite: Tensor  # bool [rows]
    logprob_rows: tuple[int, ...] = ()
    logprobs: Logprobs | None = None


class Sampler:
    """Sampling state of every slot. A slot belongs to one request at a time, and ``admit`` starts it over."""

    def __init__(self, vocab_size: int, max_slots: int, device: torch.device) -> None:
        """Every slot is greedy and free of adjustments until it is admitted."""
        self._vocab_size = vocab_size
        self._device = device
        self._noise = Noise(vocab_size, device)
        self._adjustments = Adjustments(vocab_size, max_slots, device)
        self._grammars = GrammarMasks(vocab_size, max_slots, device)
        self._greedy = np.ones(max_slots, np.bool_)
        self._truncated = np.zeros(max_slots, np.bool_)
        self._seeds = np.zeros(max_slots, np.uint64)
        self._temperature = np.ones(max_slots, np.float64)
        self._top_k = np.zeros(max_slots, np.int64)
        self._top_p = np.ones(max_slots, np.float64)
        self._min_p = np.zeros(max_slots, np.float64)
        self._num_logprobs = np.full(max_slots, -1, np.int64)

    def admit(
        self,
        slot: int,
        sampling: Sampling,
        prompt: Sequence[int],
        output: Sequence[int],
        eos_token_ids: Sequence[int],
        grammar: LLMatcher | None = None,
    ) -> None:
        """Give the slot to a request; ``output`` holds what it generated before, if it was preempted."""
        stop_ids = [*sampling.stop_token_ids, *(() if sampling.ignore_eos else eos_token_ids)]
        # Tokens that may not come yet are held back by the grammar's mask, which knows when there is no other.
        self._adjustments.admit(slot, sampling, prompt, output, () if grammar else stop_ids)
        self._grammars.admit(slot, grammar, sampling, eos_token_ids)
        self._greedy[slot] = sampling.temperature < GREEDY_BELOW or sampling.top_k == 1 or sampling.top_p <= 0.0
        self._seeds[slot] = sampling.seed & (2**64 - 1)
        self._temperature[slot] = max(sampling.temperature, GREEDY_BELOW)
        self._top_k[slot] = sampling.top_k if 0 < sampling.top_k < self._vocab_size else 0
        self._top_p[slot] = min(sampling.top_p, 1.0)
        self._min_p[slot] = sampling.min_p
        self._truncated[slot] = self._top_k[slot] > 0 or self._top_p[slot] < 1.0 or sampling.min_p > 0.0
        self._num_logprobs[slot] = -1 if sampling.logprobs is None else sampling.logprobs

    def append(self, slots: Sequence[int], token_ids: Sequence[int]) -> None:
        """Count a generated token for each of these slots."""
        self._adjustments.append(slots, token_ids)

    def sample(self, logits: Tensor, slots: Sequence[int], positions: Sequence[int]) -> Sampled:
        """Choose a token for each row of ``logits``, float32 [rows, vocab].

        ``positions`` count each request's generated tokens: 0 for its first. Only rows with a grammar are changed.
        """
        at, where = np.asarray(slots, np.int64), np.asarray(positions, np.int64)
        asking = np.flatnonzero(self._num_logprobs[at] >= 0)
        constrained = bool(self._grammars.constrained(at).any())
        raw = logits
        if len(asking) < len(at) or constrained:
            raw = logits.index_select(0, on_device(asking, self._device))
        if constrained:
            self._grammars.apply(logits, at, where)
        greedy, truncated = self._greedy[at], self._truncated[at]
        kinds = (
            (greedy, self._most_likely),
            (~greedy & truncated, self._draw_kept),
            (~greedy & ~truncated, self._draw_any),
        )
        token_ids = torch.empty(len(at), dtype=torch.int64, device=self._device)
        finite = torch.empty(len(at), dtype=torch.bool, device=self._device)
        for members, choose in kinds:
            if members.all():
                token_ids, finite = choose(self._adjusted(logits, at, where), at, where)
            elif members.any():
                group = np.flatnonzero(members)
                rows = on_device(group, self._device)
                chosen = logits.index_select(0, rows)
                token_ids[rows], finite[rows] = choose(
                    self._adjusted(chosen, at[group], where[group], copied=True), at[group], where[group]
                )
        return self._with_logprobs(raw, asking, token_ids, finite, self._num_logprobs[at])

    def _adjusted(self, logits: Tensor, slots: Ints, positions: Ints, copied: bool = False) -> Tensor:
        """The logits after the changes to single tokens; a copy if there are any."""
        if self._adjustments.needed(slots, positions).any():
            logits = logits if copied else logits.clone()
            self._adjustments.apply(logits, slots, positions)
        return logits

    def _most_likely(self, logits: Tensor, slots: Ints, positions: Ints) -> tuple[Tensor, Tensor]:
        tokens = argmax(logits)
        return tokens, logits.gather(-1, tokens[:, None])[:, 0].isfinite()

    def _draw_kept(self, logits: Tensor, slots: Ints, positions: Ints) -> tuple[Tensor, Tensor]:
        largest = logits.amax(-1, keepdim=True)
        tokens = np.empty(len(slots), np.int64)
        for part in passes(len(logits), logits, IN_MEMORY):
            at = slots[part]
            limits = Limits(self._temperature[at], self._top_k[at], self._top_p[at], self._min_p[at])
            candidates = kept_tokens(logits[part], largest[part], limits)
            tokens[part] = draw_kept(candidates, keys(self._seeds[at], positions[part]), self._noise)
        return on_device(tokens, self._device), largest[:, 0].isfinite()

    def _draw_any(self, logits: Tensor, slots: Ints, positions: Ints) -> tuple[Tensor, Tensor]:
        largest = logits.amax(-1, keepdim=True)
        scale = on_device((1.0 / self._temperature[slots]).astype(np.float32), self._device)[:, None]
        row_keys = keys(self._seeds[slots], positions)
        tokens = np.empty(len(slots), np.int64)
        for part in passes(len(logits), logits, IN_CACHE):
            scaled = (logits[part] - largest[part]).mul_(scale[part])
            tokens[part] = draw_any(scaled, row_keys[part], self._noise)
        return on_device(tokens, self._device), largest[:, 0].isfinite()

    def _with_logprobs(self, raw: Tensor, asking: Ints, token_ids: Tensor, finite: Tensor, num_top: Ints) -> Sampled:
        """``raw`` are the logits, as the model gave them, of the rows that are ``asking``."""
        if not len(asking):
            return Sampled(token_ids, finite)
        rows = on_device(asking, self._device)
        logprobs = token_logprobs(raw, token_ids[rows], num_top[asking].tolist())
        return Sampled(token_ids, finite, tuple(asking.tolist()), logprobs)
