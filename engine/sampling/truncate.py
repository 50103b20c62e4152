"""top_k, top_p and min_p: which tokens of a row may be drawn at all.

Each of the three keeps the first tokens of a row in the order of falling logit (equal logits by rising id), so a
combination keeps the shortest of the three beginnings. They count as in transformers: top_p is a share of what top_k
left, min_p is relative to the most likely token.

Nothing sorts the vocabulary. A cut below which no token can be kept is cheap to find for each parameter; only the
tokens above it are sorted.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pagewire.engine.sampling.primitives import (
    IN_CACHE,
    Floats,
    Ints,
    on_device,
    passes,
    pick,
    sort_descending,
    where_at_least,
)

# Probabilities are summed as integers: exact, hence equal in every order and batch. A row's sum stays below 2^63 for
# vocabularies below 2^23; sums over several rows may wrap, their differences are right all the same.
_FIXED_POINT = float(2**40)
# How many groups the vocabulary is split into, per kept token, to find a lower bound of the k-th largest logit.
_GROUPS_PER_TOKEN = 8
_MOST_BY_GROUPS = 1024
# Cuts are lowered by this much (in units of logit / temperature) against rounding; what slips through is sorted out.
_MARGIN = 1e-3


@dataclass(frozen=True, slots=True)
class Limits:
    """Temperature and truncation of some rows, [rows] each: top_k 0, top_p 1 and min_p 0 are off."""

    temperature: Floats
    top_k: Ints
    top_p: Floats
    min_p: Floats


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tokens that may be drawn, [candidates] each, flat over the rows and sorted by row."""

    rows: Ints
    token_ids: Ints
    values: Floats  # (logit - largest logit of the row) / temperature


def kept_tokens(logits: Tensor, largest: Tensor, limits: Limits) -> Candidates:
    """The tokens of each row, logits float32 [rows, vocab], that the row's limits keep.

    ``largest`` is each row's largest logit, [rows, 1]. A row whose logits are not numbers gets no candidate.
    """
    num_rows, vocab_size = logits.shape
    tops = largest[:, 0].double().cpu().numpy()
    tops = np.where(np.isfinite(tops), tops, np.nan)  # nothing is ever at least NaN
    log_sums = _log_sums(logits, largest, limits)
    cuts = on_device(_cuts(logits, tops, log_sums, limits)[:, None], logits.device)
    rows, token_ids = where_at_least(logits, cuts)
    rows, token_ids = sort_descending(rows, token_ids, pick(logits, rows, token_ids), vocab_size)
    values = (pick(logits, rows, token_ids) - tops[rows]) / limits.temperature[rows]

    starts = np.searchsorted(rows, np.arange(num_rows + 1))
    counts = np.where(limits.top_k > 0, limits.top_k, vocab_size)
    keep = np.arange(len(rows)) - starts[rows] < counts[rows]
    keep &= values >= _log(limits.min_p)[rows]
    if (limits.top_p < 1.0).any():
        ends = np.minimum(starts[:-1] + counts, starts[1:])
        keep &= _before_share(rows, values, starts[:-1], ends, log_sums, limits)
    return Candidates(rows[keep], token_ids[keep], values[keep])


def largest_tokens(logits: Tensor, count: int) -> Ints:
    """The ids of each row's ``count`` largest logits, [rows, count], equal ones by rising id.

    Rows must not contain NaN; ``count`` is at most the vocabulary.
    """
    num_rows, vocab_size = logits.shape
    cuts = on_device(_lower_bounds_of_kth(logits, np.full(num_rows, count))[:, None], logits.device)
    rows, token_ids = where_at_least(logits, cuts)
    rows, token_ids = sort_descending(rows, token_ids, pick(logits, rows, token_ids), vocab_size)
    starts = np.searchsorted(rows, np.arange(num_rows))
    best: Ints = token_ids[starts[:, None] + np.arange(count)]
    return best


def _log_sums(logits: Tensor, largest: Tensor, limits: Limits) -> Floats:
    """log of the sum of exp((logit - largest) / temperature), [rows]; 0 for rows that don't need it.

    Only top_p without top_k counts a share of the whole vocabulary.
    """
    sums = np.zeros(len(logits))
    needing = np.flatnonzero((limits.top_p < 1.0) & (limits.top_k == 0))
    if len(needing):
        rows = on_device(needing, logits.device)
        scale = on_device((1.0 / limits.temperature[needing]).astype(np.float32), logits.device)[:, None]
        probabilities = [
            (logits.index_select(0, rows[part]) - largest[rows[part]]).mul_(scale[part]).softmax(-1).amax(-1)
            for part in passes(len(needing), logits, IN_CACHE)
        ]
        sums[needing] = -np.log(torch.cat(probabilities).double().cpu().numpy())
    return sums


def _cuts(logits: Tensor, tops: Floats, log_sums: Floats, limits: Limits) -> NDArray[np.float32]:
    """A logit for each row, [rows], below which nothing is kept.

    All tokens below a share of (1 - top_p) / vocab together have less than 1 - top_p, so top_p keeps none of them.
    With top_k the cut must leave all k tokens, because top_p counts shares of their sum.
    """
    by_share = _log((1.0 - limits.top_p) / logits.shape[-1]) + log_sums
    cuts = tops + (np.maximum(by_share, _log(limits.min_p)) - _MARGIN) * limits.temperature
    by_count = np.flatnonzero(limits.top_k > 0)
    if len(by_count):
        some = logits if len(by_count) == len(logits) else logits[on_device(by_count, logits.device)]
        cuts[by_count] = _lower_bounds_of_kth(some, limits.top_k[by_count])
    # Impossible tokens (minus infinity) are no candidates, however many top_k would keep.
    cuts = np.maximum(cuts, np.finfo(np.float32).min)
    return np.where(np.isnan(tops), np.nan, cuts).astype(np.float32)


def _lower_bounds_of_kth(logits: Tensor, counts: Ints) -> NDArray[np.float32]:
    """A value not above the ``counts[row]``-th largest logit of each row, and close to it, [rows].

    The vocabulary is split into groups: the k-th largest of the groups' maxima has k logits not below it. Large k get
    no bound: sorting everything in such a row is cheaper, and its neighbours must not pay for it.
    """
    bounds = np.full(len(counts), -np.inf, np.float32)
    few = np.flatnonzero(counts <= _MOST_BY_GROUPS)
    if not len(few):
        return bounds
    counts = counts[few]
    if len(few) < len(bounds):
        logits = logits[on_device(few, logits.device)]
    most = min(int(counts.max()), logits.shape[-1])
    group_size = max(1, logits.shape[-1] // (_GROUPS_PER_TOKEN * most))
    num_groups = logits.shape[-1] // group_size
    maxima = logits[:, : num_groups * group_size].view(-1, group_size, num_groups).amax(1)
    falling = maxima.topk(most, -1).values.cpu().numpy()
    bounds[few] = falling[np.arange(len(few)), counts - 1]
    return bounds


def _before_share(
    rows: Ints, values: Floats, starts: Ints, ends: Ints, log_sums: Floats, limits: Limits
) -> NDArray[np.bool_]:
    """Which candidates have less than the share top_p before them, [candidates]; the first of a row always.

    ``starts`` and ``ends`` bound the candidates of each row that top_k leaves.
    """
    weights = (np.exp(values) * _FIXED_POINT).astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(weights)])  # sums[i]: everything before candidate i
    before = sums[:-1] - sums[starts][rows]
    totals = np.where(limits.top_k > 0, sums[ends] - sums[starts], np.exp(log_sums) * _FIXED_POINT)
    shares = np.where(limits.top_p < 1.0, limits.top_p * totals, np.inf)
    kept: NDArray[np.bool_] = (before < shares[rows]) | (before == 0)
    return kept


def _log(values: Floats) -> Floats:
    """The logarithm, with -inf for 0."""
    with np.errstate(divide="ignore"):
        return np.log(values)
