"""Draws follow the exact probabilities: chi-square over 20,000 samples for each parameter."""

import numpy as np
import pytest
import torch

from pagewire.engine.sampling.sampler import Sampler
from pagewire.protocol.messages import Sampling
from tests.engine.sampling import reference

VOCAB = 64
DRAWS = 20_000
BATCH = 1000
PROMPT, OUTPUT = [1, 2, 3, 4], [3, 4, 4, 5, 5, 5]

LOGITS = torch.randn(VOCAB, generator=torch.Generator().manual_seed(7)) * 1.5


def frequencies(vary: str, **parameters: float) -> np.ndarray:
    """How often each token was drawn; ``vary`` says whether seeds or positions differ between the draws."""
    sampler = Sampler(VOCAB, DRAWS, torch.device("cpu"))
    numbers = np.arange(DRAWS)
    seeds, positions = (numbers, 0 * numbers + 6) if vary == "seed" else (0 * numbers, numbers)
    for slot in range(DRAWS):
        sampler.admit(slot, Sampling(9, seed=int(seeds[slot]), **parameters), PROMPT, OUTPUT, ())  # type: ignore[arg-type]
    logits = LOGITS.repeat(BATCH, 1)
    drawn = [
        sampler.sample(logits, range(start, start + BATCH), positions[start : start + BATCH].tolist()).token_ids
        for start in range(0, DRAWS, BATCH)
    ]
    return np.bincount(torch.cat(drawn).numpy(), minlength=VOCAB)


def assert_fits(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Chi-square below the mean plus four standard deviations, rare tokens taken together."""
    assert counts[probabilities == 0].sum() == 0
    expected = probabilities * counts.sum()
    common = expected >= 5
    observed = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], max(expected[~common].sum(), 1e-9))
    if wanted[-1] < 5:
        observed, wanted = np.append(observed[:-2], observed[-2:].sum()), np.append(wanted[:-2], wanted[-2:].sum())
    freedom = len(wanted) - 1
    assert ((observed - wanted) ** 2 / wanted).sum() < freedom + 4 * np.sqrt(2 * freedom) + 1e-6


@pytest.mark.parametrize("vary", ["seed", "position"])
@pytest.mark.parametrize(
    "parameters",
    [
        {"temperature": 1.0},
        {"temperature": 0.6},
        {"temperature": 2.5},
        {"top_k": 8},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"temperature": 1.5, "top_k": 20, "top_p": 0.9, "min_p": 0.05},
        {"repetition_penalty": 1.5},
        {"presence_penalty": 1.0},
        {"frequency_penalty": -0.5},
        {
            "temperature": 0.8,
            "repetition_penalty": 0.7,
            "presence_penalty": 0.5,
            "frequency_penalty": 0.3,
            "top_p": 0.95,
        },
    ],
    ids=lambda parameters: ",".join(f"{name}={value}" for name, value in parameters.items()),
)
def test_draws_follow_the_exact_probabilities(vary: str, parameters: dict[str, float]) -> None:
    sampling = Sampling(9, **parameters)  # type: ignore[arg-type]
    logits = reference.adjusted(LOGITS.double().numpy(), sampling, PROMPT, OUTPUT, ())
    assert_fits(frequencies(vary, **parameters), reference.probabilities(logits, sampling))
