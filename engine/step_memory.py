"""What one step may need at most beside weights and KV pool, worked out from the model's shape: for a GPU's memory.

The peak is either inside a layer, with every token of the budget in it, or at the logits, which are as many as tokens
if prompt log-probabilities are wanted of all of them. What is counted are the tensors that ``models`` and ``sampling``
hold at the same time.
"""

from pagewire.engine.models.config import ModelConfig
from pagewire.engine.models.decoder import MAX_LOGIT_ROWS
from pagewire.engine.sampling.primitives import ON_GPU

_FLOAT32 = 4


def step_bytes(shape: ModelConfig, element_size: int, num_tokens: int, num_seqs: int) -> int:
    """Bytes for a step of ``num_tokens`` and ``num_seqs`` sampled rows; ``element_size`` is that of the model's dtype.

    Attention is counted without what it gathers of the context.
    """
    stream = num_tokens * shape.hidden_size * element_size
    inside = max(_norm(shape, element_size), _attention(shape, element_size), _mlp(shape, element_size))
    layer = 2 * stream + num_tokens * inside
    return max(layer, stream + _logits(shape, element_size, num_tokens, num_seqs))


def _norm(shape: ModelConfig, element_size: int) -> int:
    """Per token: the states in float32, scaled, and both the rounded and the weighted result."""
    return shape.hidden_size * (2 * _FLOAT32 + 2 * element_size)


def _attention(shape: ModelConfig, element_size: int) -> int:
    """Per token: the projections, and the rotation in float32 with its two halves and their products."""
    rotated = (shape.num_heads + shape.num_kv_heads) * shape.head_dim
    projected = rotated + shape.num_kv_heads * shape.head_dim
    return projected * element_size + rotated * (4 * _FLOAT32 + element_size)


def _mlp(shape: ModelConfig, element_size: int) -> int:
    """Per token: the normed input, gate and up, the activated gate, and the product."""
    return (shape.hidden_size + 4 * shape.intermediate_size) * element_size


def _logits(shape: ModelConfig, element_size: int, num_tokens: int, num_seqs: int) -> int:
    """The logits in float32, a part of them in the model's dtype, and what sampling or log-probabilities make of them.

    Sampling copies its rows when there are others, and again to change them. Draws and log-probabilities are made in
    passes: scaled logits, probabilities and noise with its steps in between, or log-probabilities twice and a mask.
    """
    row = shape.vocab_size
    sampled = min(num_seqs, num_tokens)
    made = num_tokens * row * _FLOAT32 + min(num_tokens, MAX_LOGIT_ROWS) * row * element_size
    copied = 2 * sampled * row * _FLOAT32
    most = max(ON_GPU, row)
    in_passes = max(6 * min(sampled * row, most), 3 * min(num_tokens * row, most)) * _FLOAT32
    return made + copied + in_passes
