"""Turning a model's hidden space, so that what is rounded to 8 bits has no outliers.

A few channels of the residual stream are far larger than the rest; rounded with one scale per group of channels, they
cost their neighbours most of their precision. Any orthogonal change of basis R leaves the model's results as they are,
if what writes to the stream is turned and what reads from it is turned back: RMS norm does not notice, once its weights
are multiplied into the projection that follows. R is a Hadamard matrix for every group of channels, which spreads an
outlier evenly over its group (QuaRot, Ashkboos et al. 2024). Values are turned likewise, within their head.

All of it happens to the weights, at load: nothing is left to do per token.
"""

import functools
import math

import torch
from torch import Tensor

from pagewire.engine.models.config import ModelConfig
from pagewire.engine.models.weights import EMBEDDINGS, HEAD

GROUP = 64  # channels that are turned together


@functools.cache
def hadamard(size: int) -> Tensor:
    """The orthonormal, symmetric Hadamard matrix [size, size] in float32; ``size`` is a power of two."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(size)


def turn(values: Tensor, group: int = GROUP) -> Tensor:
    """``values`` [..., n] in the other basis, float32; twice is the identity. ``group`` divides n."""
    groups = values.float().reshape(*values.shape[:-1], values.shape[-1] // group, group)
    return (groups @ hadamard(group)).flatten(-2)


def turn_ends(weights: dict[str, Tensor]) -> Tensor:
    """Turn embeddings, final norm and head of checked weights (see ``collect_weights``) in place, as float32.

    Returns the final norm's weights [hidden]: the states [n, hidden] that the turned model ends with are
    ``turn(states) * norm`` in the original basis.
    """
    norm = weights["model.norm.weight"]
    weights[HEAD] = turn(weights.get(HEAD, weights[EMBEDDINGS]).float() * norm)
    weights[EMBEDDINGS] = turn(weights[EMBEDDINGS])
    weights["model.norm.weight"] = torch.ones_like(norm)
    return norm.float()


def turn_layer(config: ModelConfig, weights: dict[str, Tensor], layer: int) -> None:
    """Turn the projections of one layer in place, as float32; the norms before them are left with weights of one."""
    # A head may be smaller than a group, or not a multiple of it.
    within_head = math.gcd(GROUP, config.head_dim)
    prefix = f"model.layers.{layer}."
    attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
    _absorb_norm(weights, f"{prefix}input_layernorm", [f"{attention}{name}_proj" for name in "qkv"])
    _absorb_norm(weights, f"{prefix}post_attention_layernorm", [f"{mlp}gate_proj", f"{mlp}up_proj"])
    _turn_outputs(weights, f"{attention}o_proj", GROUP)
    _turn_outputs(weights, f"{mlp}down_proj", GROUP)
    _turn_outputs(weights, f"{attention}v_proj", within_head)
    weights[f"{attention}o_proj.weight"] = turn(weights[f"{attention}o_proj.weight"], within_head)


def _absorb_norm(weights: dict[str, Tensor], norm: str, readers: list[str]) -> None:
    scale = weights[f"{norm}.weight"]
    weights[f"{norm}.weight"] = torch.ones_like(scale)
    for name in readers:
        weights[f"{name}.weight"] = turn(weights[f"{name}.weight"].float() * scale)


def _turn_outputs(weights: dict[str, Tensor], name: str, group: int) -> None:
    """Let a projection, weight [n, k] and bias [n] if it has one, produce turned outputs."""
    weights[f"{name}.weight"] = turn(weights[f"{name}.weight"].T, group).T
    if f"{name}.bias" in weights:
        weights[f"{name}.bias"] = turn(weights[f"{name}.bias"], group)
