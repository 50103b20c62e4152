"""Rotary position embedding: frequencies for every supported kind, and the rotation itself."""

import math

import torch
from torch import Tensor

from pagewire.engine.models.config import ModelConfig, RopeConfig


class Rotary:
    """The rotation of one model. Frequencies, cosines and sines are float32 whatever the model's dtype is."""

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        """Compute the inverse frequencies once, on ``device``."""
        frequencies, self.scale = inverse_frequencies(config.rope, config.head_dim)
        self.frequencies = frequencies.to(device)  # [head_dim / 2]

    def table(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, float32 [positions, head_dim / 2], of integer ``positions``."""
        angles = positions.to(torch.float32)[:, None] * self.frequencies
        return angles.cos() * self.scale, angles.sin() * self.scale


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate ``states`` [tokens, heads, head_dim] by the angles of their tokens; keeps the dtype.

    Dimension i is paired with dimension i + head_dim / 2, the layout of Hugging Face checkpoints.
    """
    first, second = states.float().chunk(2, dim=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(states.dtype)


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> tuple[Tensor, float]:
    """The inverse frequencies, float32 [head_dim / 2], and the factor that cosines and sines are multiplied by."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    plain = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return plain / rope.scaling["factor"], 1.0
    if rope.kind == "llama3":
        return _llama3(plain, rope), 1.0
    if rope.kind == "yarn":
        return _yarn(rope, head_dim), _yarn_scale(rope)
    if rope.kind == "factors":
        return plain / torch.tensor(rope.factors), 1.0
    return plain, 1.0


def _llama3(plain: Tensor, rope: RopeConfig) -> Tensor:
    """Long waves are stretched by the factor, short ones kept, those in between interpolated."""
    factor, low, high = (rope.scaling[name] for name in ("factor", "low_freq_factor", "high_freq_factor"))
    original = rope.scaling["original_max_position_embeddings"]
    wavelengths = 2 * math.pi / plain
    share = ((original / wavelengths - low) / (high - low)).clamp(0, 1)
    blend: Tensor = (1 - share) * plain / factor + share * plain
    return blend


def _yarn(rope: RopeConfig, head_dim: int) -> Tensor:
    """Frequencies that turn often within the original length are kept, slow ones stretched, a ramp in between."""
    original = rope.scaling["original_max_position_embeddings"]
    low = _yarn_dimension(rope, rope.scaling.get("beta_fast") or 32, original, head_dim)
    high = _yarn_dimension(rope, rope.scaling.get("beta_slow") or 1, original, head_dim)
    if rope.scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = max(high - low, 0.001)
    kept = 1 - ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    plain: Tensor = 1.0 / rope.theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
    return plain / rope.scaling["factor"] * (1 - kept) + plain * kept


def _yarn_dimension(rope: RopeConfig, rotations: float, original: float, head_dim: int) -> float:
    """The (fractional) dimension whose wave makes ``rotations`` turns within the original length."""
    return head_dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))


def _yarn_scale(rope: RopeConfig) -> float:
    scaling = rope.scaling
    if (given := scaling.get("attention_factor")) is not None:
        return float(given)

    def magnitude(weight: float) -> float:
        return 1.0 if scaling["factor"] <= 1 else 0.1 * weight * math.log(scaling["factor"]) + 1.0

    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return magnitude(scaling["mscale"]) / magnitude(scaling["mscale_all_dim"])
    return magnitude(1.0)
