"""Log-probabilities of the untouched logits: chosen token, its rank, and the most likely alternatives."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire.engine.sampling.primitives import IN_CACHE, count_above, on_device, passes
from pagewire.engine.sampling.truncate import largest_tokens
from pagewire.protocol.messages import LOGPROB_FLOOR


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """One token's log-probability (natural, finite), its rank (1 is the most likely) and (id, logprob) alternatives."""

    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Log-probabilities of some rows, still on the device."""

    num_top: tuple[int, ...]  # alternatives wanted by each row
    chosen: Tensor  # float32 [rows]
    ranks: Tensor  # int64 [rows]
    top_ids: Tensor  # int64 [rows, max(num_top)], most likely first
    top: Tensor  # float32 [rows, max(num_top)]

    def unpack(self) -> list[TokenLogprobs]:
        """The rows as host values; waits for the device."""
        columns = (self.chosen.tolist(), self.ranks.tolist(), self.top_ids.tolist(), self.top.tolist())
        return [
            TokenLogprobs(chosen, rank, tuple(zip(ids[:wanted], values[:wanted], strict=True)))
            for wanted, chosen, rank, ids, values in zip(self.num_top, *columns, strict=True)
        ]


def token_logprobs(logits: Tensor, token_ids: Tensor, num_top: Sequence[int]) -> Logprobs:
    """Log-probabilities under ``logits``, float32 [rows, vocab], of one token per row, int64 [rows].

    ``num_top`` says how many alternatives each row wants. Values are at least ``LOGPROB_FLOOR``, never NaN.
    """
    most = min(max(num_top), logits.shape[-1])
    parts = [_one_pass(logits[part], token_ids[part], most) for part in passes(len(logits), logits, IN_CACHE)]
    chosen, ranks, top_ids, top = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return Logprobs(tuple(num_top), chosen, ranks, top_ids, top)


def prompt_logprobs(logits: Tensor, token_ids: Tensor, num_top: int) -> Logprobs:
    """Log-probabilities of prompt tokens: row i of ``logits`` [tokens, vocab] predicts ``token_ids[i]``."""
    return token_logprobs(logits, token_ids, [num_top] * len(logits))


def _one_pass(logits: Tensor, token_ids: Tensor, num_top: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    at = token_ids[:, None]
    ranks = count_above(logits, logits.gather(-1, at)) + 1
    values = logits.log_softmax(-1)
    top_ids = at[:, :0]
    if num_top:
        top_ids = on_device(largest_tokens(values.nan_to_num(-torch.inf), num_top), logits.device)
    return _finite(values.gather(-1, at)[:, 0]), ranks, top_ids, _finite(values.gather(-1, top_ids))


def _finite(logprobs: Tensor) -> Tensor:
    return logprobs.nan_to_num(LOGPROB_FLOOR, 0.0, LOGPROB_FLOOR).clamp_(LOGPROB_FLOOR, 0.0)
