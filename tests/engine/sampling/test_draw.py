import numpy as np
import pytest
import torch

from pagewire.engine.sampling.draw import draw_any
from pagewire.engine.sampling.noise import Noise, exponential, keys

CPU = torch.device("cpu")
ROWS, VOCAB = 200, 3000


@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("time_limit", [1e-6, 0.5, 8.0, 1e6])
def test_the_winner_does_not_depend_on_how_many_tokens_are_looked_at(spread: float, time_limit: float) -> None:
    logits = torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(0)) * spread
    scaled = logits - logits.amax(-1, keepdim=True)
    noise = Noise(VOCAB, CPU)
    row_keys = keys(np.arange(ROWS, dtype=np.uint64), np.arange(ROWS))
    gumbel = -np.log(exponential(noise.of_all_tokens(row_keys).numpy()))
    expected = (scaled.double().numpy() + gumbel).argmax(-1)
    assert draw_any(scaled, row_keys, noise, time_limit).tolist() == expected.tolist()
