"""The sampler's definition, one row at a time and without any of its shortcuts."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from pagewire.engine.sampling.noise import Noise, exponential, keys
from pagewire.engine.sampling.sampler import GREEDY_BELOW
from pagewire.protocol.messages import Sampling

Row = NDArray[np.float64]


def adjusted(
    logits: Row, sampling: Sampling, prompt: Sequence[int], output: Sequence[int], eos_token_ids: Sequence[int]
) -> Row:
    """Logits after logit_bias, min_tokens and the penalties."""
    logits = logits.copy()
    for token, bias in sampling.logit_bias.items():
        logits[token] += bias
    if len(output) < sampling.min_tokens:
        for token in (*sampling.stop_token_ids, *(() if sampling.ignore_eos else eos_token_ids)):
            logits[token] = -math.inf
    for token in {*prompt, *output}:
        logits[token] *= 1 / sampling.repetition_penalty if logits[token] > 0 else sampling.repetition_penalty
    for token, count in Counter(output).items():
        logits[token] -= sampling.frequency_penalty * count + sampling.presence_penalty
    return logits


def kept(logits: Row, sampling: Sampling) -> list[int]:
    """The tokens that temperature > 0 may draw, most likely first."""
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    weights = np.exp((logits[order] - logits[order[0]]) / sampling.temperature)
    shares = np.cumsum(weights / weights.sum())
    if sampling.top_p < 1.0:
        before = np.concatenate([[0.0], shares[:-1]])
        order = [token for token, share in zip(order, before, strict=True) if share < sampling.top_p or share == 0.0]
    return [token for token, weight in zip(order, weights, strict=False) if weight >= sampling.min_p]


def probabilities(logits: Row, sampling: Sampling) -> Row:
    """The exact distribution of one draw from adjusted logits."""
    tokens = kept(logits, sampling)
    weights = np.exp((logits[tokens] - logits[tokens[0]]) / sampling.temperature)
    result = np.zeros_like(logits)
    result[tokens] = weights / weights.sum()
    return result


def choose(logits: Row, sampling: Sampling, position: int) -> int:
    """The token that must come out for adjusted logits."""
    if sampling.temperature < GREEDY_BELOW:
        return int(logits.argmax())
    noise = Noise(len(logits), torch.device("cpu"))
    row = keys(np.array([sampling.seed % 2**64], np.uint64), np.array([position]))
    gumbel = -np.log(exponential(noise.of_all_tokens(row)[0].numpy()))
    return max(kept(logits, sampling), key=lambda token: logits[token] / sampling.temperature + gumbel[token])
