"""Drawing tokens by the Gumbel-max trick: the largest of logit / temperature + Gumbel noise wins.

Gumbel noise is -log of an exponential variate, so this is a race in which token i arrives after E_i / p_i. Seen that
way only a handful of tokens can be first, and only theirs need logarithms: the winner's time is exponential with rate
1, whatever the distribution, and a token whose noise already puts it behind a time limit can't win.
"""

import numpy as np
from torch import Tensor

from pagewire.engine.sampling.noise import Keys, Noise, exponential, may_arrive_within
from pagewire.engine.sampling.primitives import Floats, Ints, pick
from pagewire.engine.sampling.truncate import Candidates

# The winner arrives after 8 with probability exp(-8); then the row is drawn again with a later limit.
_FIRST_TIME_LIMIT = 8.0
_LATER = 64.0
# Times are compared in float32 probabilities; this is far above their relative rounding.
_ROUNDING = 1.0001


def draw_kept(candidates: Candidates, keys: Keys, noise: Noise) -> Ints:
    """The token drawn for each row, [rows]; 0 for a row without candidates."""
    words = noise.of_tokens(keys, candidates.rows, candidates.token_ids)
    return _winners(candidates, exponential(words), len(keys.odd))


def draw_any(scaled: Tensor, keys: Keys, noise: Noise, time_limit: float = _FIRST_TIME_LIMIT) -> Ints:
    """The token drawn for each row from the whole vocabulary, [rows].

    ``scaled`` is (logit - largest logit of the row) / temperature, float32 [rows, vocab]. A row that is not made of
    numbers gets 0.
    """
    rates = scaled.softmax(-1)
    rows, token_ids = may_arrive_within(time_limit * _ROUNDING, noise.of_all_tokens(keys), rates)
    arrivals = exponential(noise.of_tokens(keys, rows, token_ids))
    values = pick(scaled, rows, token_ids).astype(np.float64)
    tokens = _winners(Candidates(rows, token_ids, values), arrivals, len(scaled))

    late = ~np.isnan(rates[:, 0].cpu().numpy())
    late[rows[arrivals <= time_limit * pick(rates, rows, token_ids)]] = False
    if late.any():
        again = np.flatnonzero(late)
        tokens[again] = draw_any(scaled[again], keys[again], noise, time_limit * _LATER)
    return tokens


def _winners(candidates: Candidates, arrivals: Floats, num_rows: int) -> Ints:
    """The candidate with the largest value + Gumbel noise of each row, [rows]; 0 for a row without any."""
    scores = candidates.values - np.log(arrivals)
    best = np.full(num_rows, -np.inf)
    np.maximum.at(best, candidates.rows, scores)
    won = scores == best[candidates.rows]
    tokens = np.zeros(num_rows, np.int64)
    tokens[candidates.rows[won]] = candidates.token_ids[won]
    return tokens
