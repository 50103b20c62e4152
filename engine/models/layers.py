"""The building blocks of a decoder, as plain objects around their weights."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x W^T + b. Several projections of the same input are fused by stacking their rows."""

    weight: Tensor  # [out, in]
    bias: Tensor | None = None  # [out]

    def __call__(self, x: Tensor) -> Tensor:
        """Project ``x`` [..., in] to [..., out]."""
        return functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class RMSNorm:
    """Root mean square norm over the last dimension, computed in float32 and rounded before the weight."""

    weight: Tensor  # [size]
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Normalize ``x`` [..., size]; keeps the dtype."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * (wide * scale).to(x.dtype)


@dataclass(frozen=True, slots=True)
class GatedMLP:
    """down(silu(gate(x)) * up(x)), with gate and up fused."""

    gate_up: Linear
    down: Linear

    def __call__(self, x: Tensor) -> Tensor:
        """Transform ``x`` [tokens, hidden] to the same shape."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)
