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

from pagewire.engine.sampling.primitives import on_device, sort_descending, where_at_least

# Probabilities are summed as integers: exact, hence equal in every order and batch. A row's sum stays below 2^63 for
# vocabularies below 2^23; sums over several rows may wrap, their differences are right all the same.
_FIXED_POINT = float(2**40)
# How many groups the vocabulary is split into, per kept token, to find a lower bound of the k-th largest logit.
_GROUPS_PER_TOKEN = 8
# Cuts are lowered by this much (in units of logit / temperature) against rounding; what slips through is sorted out.
_MARGIN = 1e-3


@dataclass(frozen=True, slots=True)
class Limits:
    """Temperature and truncation of some rows, host arrays [rows]: top_k 0, top_p 1 and min_p 0 are off."""

    temperature: NDArray[np.float64]
    top_k: NDArray[np.int64]
    top_p: NDArray[np.float64]
    min_p: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tokens that may be drawn, flat over the rows and sorted by row."""

    rows: Tensor  # int64 [candidates]
    token_ids: Tensor  # int64 [candidates]
    values: Tensor  # float64 [candidates]: (logit - largest logit of the row) / temperature


def kept_tokens(logits: Tensor, largest: Tensor, limits: Limits) -> Candidates:
    """The tokens of each row, logits float32 [rows, vocab], that the row's limits keep.

    ``largest`` is each row's largest logit, [rows, 1]. A row whose logits are not numbers gets no candidate.
    """
    device, (num_rows, vocab_size) = logits.device, logits.shape
    log_sums = _log_sums(logits, largest, limits)
    rows, token_ids = where_at_least(logits, _cuts(logits, largest, log_sums, limits))
    rows, token_ids = sort_descending(rows, token_ids, logits[rows, token_ids], vocab_size)
    scale = on_device(1.0 / limits.temperature, device)
    values = (logits[rows, token_ids].double() - largest[rows, 0].double()) * scale[rows]

    starts = torch.searchsorted(rows, torch.arange(num_rows + 1, device=device))
    places = torch.arange(len(rows), device=device) - starts[rows]
    counts = on_device(np.where(limits.top_k > 0, limits.top_k, vocab_size), device)
    keep = places < counts[rows]
    keep &= values >= on_device(_log(limits.min_p), device)[rows]
    if (limits.top_p < 1.0).any():
        ends = torch.minimum(starts[:-1] + counts, starts[1:])
        totals = torch.where(counts < vocab_size, torch.nan, log_sums.exp() * _FIXED_POINT)
        keep &= _before_share(rows, values, starts[:-1], ends, totals, on_device(limits.top_p, device))
    return Candidates(rows[keep], token_ids[keep], values[keep])


def largest_tokens(logits: Tensor, count: int) -> Tensor:
    """The ids of each row's ``count`` largest logits, int64 [rows, count], equal ones by rising id.

    Rows must not contain NaN; ``count`` is at most the vocabulary.
    """
    num_rows, vocab_size = logits.shape
    rows, token_ids = where_at_least(logits, _lower_bound_of_kth(logits, np.full(num_rows, count)))
    rows, token_ids = sort_descending(rows, token_ids, logits[rows, token_ids], vocab_size)
    starts = torch.searchsorted(rows, torch.arange(num_rows, device=logits.device))
    return token_ids[starts[:, None] + torch.arange(count, device=logits.device)]


def _log_sums(logits: Tensor, largest: Tensor, limits: Limits) -> Tensor:
    """log of the sum of exp((logit - largest) / temperature), float64 [rows]; 0 for rows that don't need it.

    Only top_p without top_k counts a share of the whole vocabulary.
    """
    sums = torch.zeros(len(logits), dtype=torch.float64, device=logits.device)
    needing = np.flatnonzero((limits.top_p < 1.0) & (limits.top_k == 0))
    if len(needing):
        rows = on_device(needing, logits.device)
        scale = on_device((1.0 / limits.temperature[needing]).astype(np.float32), logits.device)
        scaled = (logits[rows] - largest[rows]).mul_(scale[:, None])
        sums[rows] = -scaled.softmax(-1).amax(-1).double().log()
    return sums


def _cuts(logits: Tensor, largest: Tensor, log_sums: Tensor, limits: Limits) -> Tensor:
    """A logit for each row, float32 [rows, 1], below which nothing is kept.

    All tokens below a share of (1 - top_p) / vocab together have less than 1 - top_p, so top_p keeps none of them.
    With top_k the cut must leave all k tokens, because top_p counts shares of their sum.
    """
    device = logits.device
    by_share = on_device(_log((1.0 - limits.top_p) / logits.shape[-1]), device) + log_sums
    values = torch.maximum(by_share, on_device(_log(limits.min_p), device)) - _MARGIN
    cuts = largest + (values * on_device(limits.temperature, device)).float()[:, None]
    by_count = np.flatnonzero(limits.top_k > 0)
    if len(by_count):
        rows = on_device(by_count, device)
        chosen = logits if len(by_count) == len(logits) else logits[rows]
        cuts[rows] = _lower_bound_of_kth(chosen, limits.top_k[by_count])
    return cuts


def _lower_bound_of_kth(logits: Tensor, counts: NDArray[np.int64]) -> Tensor:
    """A value not above the ``counts[row]``-th largest logit of each row, and close to it, [rows, 1].

    The vocabulary is split into groups: the k-th largest of the groups' maxima has k logits not below it.
    """
    most = int(counts.max())
    group_size = max(1, logits.shape[-1] // (_GROUPS_PER_TOKEN * most))
    num_groups = logits.shape[-1] // group_size
    maxima = logits[:, : num_groups * group_size].unflatten(-1, (group_size, num_groups)).amax(1)
    return maxima.topk(most, -1).values.gather(-1, on_device(counts - 1, logits.device)[:, None])


def _before_share(rows: Tensor, values: Tensor, starts: Tensor, ends: Tensor, totals: Tensor, top_p: Tensor) -> Tensor:
    """Which candidates, bool [candidates], have less than the share top_p before them; the first of a row always.

    ``starts`` and ``ends`` bound each row's candidates; ``totals`` is what the share is of, NaN for the sum of these.
    """
    weights = (values.exp() * _FIXED_POINT).long()
    sums = torch.cat([weights.new_zeros(1), weights.cumsum(0)])  # sums[i]: everything before candidate i
    before = sums[:-1] - sums[starts][rows]
    totals = torch.where(totals.isnan(), (sums[ends] - sums[starts]).double(), totals)
    limit = torch.where(top_p < 1.0, top_p * totals, torch.inf)
    return (before < limit[rows]) | (before == 0)


def _log(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm, with -inf for 0."""
    with np.errstate(divide="ignore"):
        return np.log(values)
