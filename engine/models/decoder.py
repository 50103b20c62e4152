"""The decoder of the Llama family in torch: Llama, Mistral, Qwen2, Qwen3 and what shares their shape."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from pagewire.engine.attention.base import Attention, KvCache, StepAttention
from pagewire.engine.batch import Batch
from pagewire.engine.models.base import BLOCK_SIZE
from pagewire.engine.models.config import ModelConfig
from pagewire.engine.models.layers import GatedMLP, Linear, RMSNorm
from pagewire.engine.models.rope import Rotary, rotate
from pagewire.engine.models.weights import EMBEDDINGS, HEAD

# Logits are made in the model's dtype and kept in float32: for so many rows at once, they need not exist as both.
MAX_LOGIT_ROWS = 512


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """Projections, rotation and paged attention of one layer. q/k norms are Qwen3's."""

    qkv: Linear
    output: Linear
    query_norm: RMSNorm | None
    key_norm: RMSNorm | None
    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int | None

    def __call__(self, x: Tensor, rotation: tuple[Tensor, Tensor], attend: StepAttention, cache: KvCache) -> Tensor:
        """Attend with ``x`` [tokens, hidden] to everything before it, itself included."""
        heads, rotated = self.num_heads, self.num_heads + self.num_kv_heads
        states = self.qkv(x).view(len(x), rotated + self.num_kv_heads, self.head_dim)
        queries_keys, values = states[:, :rotated], states[:, rotated:]
        if self.query_norm and self.key_norm:
            normed = self.query_norm(queries_keys[:, :heads]), self.key_norm(queries_keys[:, heads:])
            queries_keys = torch.cat(normed, dim=1)
        queries_keys = rotate(queries_keys, *rotation)
        queries, keys = queries_keys[:, :heads], queries_keys[:, heads:]
        return self.output(attend(queries, keys, values, cache, self.window).flatten(1))


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Pre-norm attention and MLP, each added to the stream."""

    attention_norm: RMSNorm
    attention: SelfAttention
    mlp_norm: RMSNorm
    mlp: GatedMLP

    def __call__(self, x: Tensor, rotation: tuple[Tensor, Tensor], attend: StepAttention, cache: KvCache) -> Tensor:
        """Transform the stream ``x`` [tokens, hidden]."""
        x = x + self.attention(self.attention_norm(x), rotation, attend, cache)
        return x + self.mlp(self.mlp_norm(x))


class Decoder:
    """A Llama-family model with its weights and its paged KV cache; implements ``EmbeddingModel``."""

    def __init__(self, config: ModelConfig, weights: dict[str, Tensor], attention: Attention) -> None:
        """Build from checked weights (see ``collect_weights``); they are taken out of ``weights`` as they are fused."""
        self.config = config
        self.vocab_size = config.vocab_size
        self.hidden_size = config.hidden_size
        self._attention = attention
        self._embeddings = weights.pop(EMBEDDINGS)
        self._head = Linear(weights.pop(HEAD, self._embeddings))
        self._norm = RMSNorm(weights.pop("model.norm.weight"), config.norm_eps)
        self._rotary = Rotary(config, self._embeddings.device)
        self._layers = [_build_layer(config, weights, layer) for layer in range(config.num_layers)]
        self._caches: list[KvCache] = []

    def kv_bytes_per_block(self) -> int:
        """Memory that one block costs over all layers, in bytes."""
        per_token = 2 * self.config.num_kv_heads * self.config.head_dim * self._embeddings.element_size()
        return self.config.num_layers * BLOCK_SIZE * per_token

    def allocate_kv(self, num_blocks: int) -> None:
        """Create the KV cache, zeroed; called once, before the first ``forward``."""
        shape = (num_blocks, BLOCK_SIZE, self.config.num_kv_heads, self.config.head_dim)
        like = self._embeddings
        self._caches = [KvCache(_zeros(shape, like), _zeros(shape, like)) for _ in self._layers]

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Tensor:
        """Run one step: write K and V of the batch's tokens, return logits, float32 [logit_rows, vocab_size]."""
        return self._logits(self._stream(batch)[batch.logit_indices])

    @torch.inference_mode()
    def forward_hidden(self, batch: Batch, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Run one step as ``forward`` does; also return the normed hidden states [n, hidden] of tokens ``indices``."""
        x = self._stream(batch)
        return self._logits(x[batch.logit_indices]), self._norm(x[indices])

    def _stream(self, batch: Batch) -> Tensor:
        """The residual stream after the last layer, [tokens, hidden]."""
        rotation = self._rotary.table(batch.positions)
        attend = self._attention.prepare(batch)
        x = functional.embedding(batch.token_ids, self._embeddings)
        for layer, cache in zip(self._layers, self._caches, strict=True):
            x = layer(x, rotation, attend, cache)
        return x

    def _logits(self, x: Tensor) -> Tensor:
        if len(x) <= MAX_LOGIT_ROWS:
            return self._head(self._norm(x)).float()
        logits = x.new_empty((len(x), self.vocab_size), dtype=torch.float32)
        for start in range(0, len(x), MAX_LOGIT_ROWS):
            part = slice(start, start + MAX_LOGIT_ROWS)
            logits[part] = self._head(self._norm(x[part]))
        return logits


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Zeros of the same dtype and device as ``like``; on a CPU, memory that costs nothing until it is written."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    # torch fills with zeros, which touches every page of a pool that may never be used; the system hands out zeroed
    # pages on first use.
    pages = np.zeros(math.prod(shape) * like.element_size(), dtype=np.uint8)
    return torch.from_numpy(pages).view(like.dtype).view(shape)


def _build_layer(config: ModelConfig, weights: dict[str, Tensor], layer: int) -> DecoderLayer:
    prefix = f"model.layers.{layer}."

    def linear(*names: str) -> Linear:
        weight = _fuse(weights, [f"{prefix}{name}.weight" for name in names])
        biases = [f"{prefix}{name}.bias" for name in names]
        return Linear(weight, _fuse(weights, biases) if biases[0] in weights else None)

    def norm(name: str) -> RMSNorm:
        return RMSNorm(weights.pop(f"{prefix}{name}.weight"), config.norm_eps)

    return DecoderLayer(
        attention_norm=norm("input_layernorm"),
        attention=SelfAttention(
            qkv=linear("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            output=linear("self_attn.o_proj"),
            query_norm=norm("self_attn.q_norm") if config.qk_norm else None,
            key_norm=norm("self_attn.k_norm") if config.qk_norm else None,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            window=config.windows[layer],
        ),
        mlp_norm=norm("post_attention_layernorm"),
        mlp=GatedMLP(linear("mlp.gate_proj", "mlp.up_proj"), linear("mlp.down_proj")),
    )


def _fuse(weights: dict[str, Tensor], names: list[str]) -> Tensor:
    """Take the tensors out of ``weights`` and stack their rows; a single one stays as it is."""
    parts = [weights.pop(name) for name in names]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
