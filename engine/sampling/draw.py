"""Drawing tokens by the Gumbel-max trick: the largest of logit / temperature + Gumbel noise wins.

Gumbel noise is -log of an exponential variate, so this is a race in which token i arrives after E_i / p_i. Seen that
way only a handful of tokens can be first, and only theirs need logarithms: the winner's time is exponential with rate
1, whatever the distribution, and a token whose noise already puts it behind a time limit can't win.
"""

import torch
from torch import Tensor

from pagewire.engine.sampling.noise import Keys, Noise, exponential, lead_over
from pagewire.engine.sampling.primitives import where_at_least
from pagewire.engine.sampling.truncate import Candidates

# The winner arrives after 8 with probability exp(-8); then the row is drawn again with a later limit.
_FIRST_TIME_LIMIT = 8.0
_LATER = 64.0
# Times are compared in float32 probabilities; this is far above their relative rounding.
_ROUNDING = 1.0001


def draw_kept(candidates: Candidates, keys: Keys, noise: Noise, num_rows: int) -> Tensor:
    """The token drawn for each row, int64 [rows]; 0 for a row without candidates."""
    words = noise.of_tokens(keys.of(candidates.rows), candidates.token_ids)
    return _winners(candidates, exponential(words), num_rows)


def draw_any(scaled: Tensor, keys: Keys, noise: Noise, time_limit: float = _FIRST_TIME_LIMIT) -> Tensor:
    """The token drawn for each row from the whole vocabulary, int64 [rows].

    ``scaled`` is (logit - largest logit of the row) / temperature, float32 [rows, vocab]. A row that is not made of
    numbers gets 0.
    """
    rates = scaled.softmax(-1)
    words = noise.every_token(keys)
    lead = lead_over(words, rates, time_limit * _ROUNDING)
    rows, token_ids = where_at_least(lead, lead.new_zeros(1, 1))
    arrivals = exponential(words[rows, token_ids])
    tokens = _winners(Candidates(rows, token_ids, scaled[rows, token_ids].double()), arrivals, len(scaled))

    late = ~rates[:, 0].isnan()
    late[rows[arrivals <= time_limit * rates[rows, token_ids]]] = False
    if late.any():
        again = late.nonzero()[:, 0]
        tokens[again] = draw_any(scaled[again], keys.select(again), noise, time_limit * _LATER)
    return tokens


def _winners(candidates: Candidates, arrivals: Tensor, num_rows: int) -> Tensor:
    """The candidate with the largest value + Gumbel noise of each row, int64 [rows]; 0 for a row without any."""
    scores = candidates.values - arrivals.log()
    best = scores.new_full((num_rows,), -torch.inf).scatter_reduce(0, candidates.rows, scores, "amax")
    won = scores == best[candidates.rows]
    tokens = candidates.token_ids.new_zeros(num_rows)
    tokens[candidates.rows[won]] = candidates.token_ids[won]
    return tokens
