"""The decoder in native code: one call per step, on CPU, in bfloat16 or int8."""

import ctypes
import weakref

import torch
from torch import Tensor

from pagewire.engine.batch import Batch
from pagewire.engine.kernels import bindings as native
from pagewire.engine.models.base import BLOCK_SIZE
from pagewire.engine.models.config import ModelConfig
from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.rope import inverse_frequencies
from pagewire.engine.models.rotation import turn, turn_ends, turn_layer
from pagewire.engine.models.weights import EMBEDDINGS, HEAD

MAX_HEAD_DIM = 256
LANES = 16  # of a vector: what sizes must be a multiple of
PANEL = 32  # output columns packed together
INT8_GROUP = 64  # input channels that share a scale


def unsupported(config: ModelConfig, quantization: str | None) -> str | None:
    """Why the native code cannot serve a model of this shape, in words; None when it can."""
    group = INT8_GROUP if quantization else LANES
    inputs = (config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim)
    if any(size % group for size in inputs):
        return f"projection inputs {inputs} must be multiples of {group}"
    if config.hidden_size % PANEL:
        return f"hidden size {config.hidden_size} must be a multiple of {PANEL}"
    if config.head_dim % LANES or config.head_dim > MAX_HEAD_DIM:
        return f"head size {config.head_dim} must be a multiple of {LANES} and at most {MAX_HEAD_DIM}"
    return None


class NativeDecoder:
    """A Llama-family model whose weights and KV cache live in native memory; implements ``EmbeddingModel``."""

    def __init__(
        self,
        config: ModelConfig,
        weights: dict[str, Tensor],
        *,
        quantization: str | None = None,
        kv_cache_dtype: str = "auto",
        threads: int = 0,
        isa: str | None = None,
    ) -> None:
        """Pack checked weights (see ``collect_weights``), which are taken out of ``weights`` as they are packed.

        ``quantization`` is "int8" or "int8-weight-only"; ``kv_cache_dtype`` "bfloat16", "int8" or "auto": int8 where
        activations are int8, too, else bfloat16.
        ``threads`` 0 means as many as torch uses. ``isa`` names an instruction set of ``kernels.build`` (None: the
        best there is). Raises ``ModelError`` for a shape that ``unsupported`` names, ``BuildError`` without a library.
        """
        if reason := unsupported(config, quantization):
            raise ModelError(f"native kernels cannot run this model: {reason}")
        self.config = config
        self.vocab_size = config.vocab_size
        self.hidden_size = config.hidden_size
        self._library, self.isa = native.load_library(isa)
        # Only where activations are rounded to 8 bits; see rotation.py.
        self._turned_norm = turn_ends(weights) if quantization == "int8" else None
        self._embeddings = weights.pop(EMBEDDINGS).to(torch.bfloat16).contiguous()
        self._quantization = quantization
        self._kv_dtype = kv_cache_dtype
        if kv_cache_dtype == "auto":
            self._kv_dtype = "int8" if quantization == "int8" else "bfloat16"
        self._handle = self._create(threads or torch.get_num_threads())
        weakref.finalize(self, self._library.pw_destroy, self._handle)
        self._pack(weights)

    def kv_bytes_per_block(self) -> int:
        """Memory that one block costs over all layers, in bytes."""
        # As kv_cache.h lays it out: in int8 each token has a float32 scale beside its K and its V.
        per_token = self.config.head_dim * 2 if self._kv_dtype == "bfloat16" else self.config.head_dim + 4
        return 2 * self.config.num_layers * self.config.num_kv_heads * BLOCK_SIZE * per_token

    def allocate_kv(self, num_blocks: int) -> None:
        """Create the KV cache, zeroed; called once, before the first ``forward``."""
        if self._library.pw_allocate_kv(self._handle, num_blocks):
            raise MemoryError(f"no memory for {num_blocks} KV blocks")

    def prepare_kv(self, num_blocks: int) -> bool:
        """Ask the system for some memory of the first ``num_blocks`` blocks; False when nothing is left to ask for."""
        return bool(self._library.pw_prepare_kv(self._handle, num_blocks))

    def forward(self, batch: Batch) -> Tensor:
        """Run one step: write K and V of the batch's tokens, return logits, float32 [logit_rows, vocab_size]."""
        return self.forward_hidden(batch, torch.empty(0, dtype=torch.int64))[0]

    def forward_hidden(self, batch: Batch, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Run one step as ``forward`` does; also return the normed hidden states [n, hidden] of tokens ``indices``.

        States are float32, as the native code computes them.
        """
        logits = torch.empty((len(batch.logit_indices), self.vocab_size), dtype=torch.float32)
        hidden = torch.empty((len(indices), self.hidden_size), dtype=torch.float32)
        arrays = native.Batch(
            tokens=len(batch.token_ids),
            rows=len(batch.seq_lens),
            logit_rows=len(batch.logit_indices),
            hidden_rows=len(indices),
            max_blocks=batch.block_tables.shape[1],
            token_ids=batch.token_ids.data_ptr(),
            positions=batch.positions.data_ptr(),
            slot_mapping=batch.slot_mapping.data_ptr(),
            block_tables=batch.block_tables.data_ptr(),
            seq_lens=batch.seq_lens.data_ptr(),
            query_starts=batch.query_starts.data_ptr(),
            logit_indices=batch.logit_indices.data_ptr(),
            hidden_indices=indices.data_ptr(),
            logits=logits.data_ptr(),
            hidden=hidden.data_ptr(),
        )
        if self._library.pw_forward(self._handle, ctypes.byref(arrays)):
            raise MemoryError(f"no memory for a step of {len(batch.token_ids)} tokens")
        return logits, hidden if self._turned_norm is None else turn(hidden) * self._turned_norm

    def _create(self, threads: int) -> int:
        config = self.config
        frequencies, scale = inverse_frequencies(config.rope, config.head_dim)
        windows = (ctypes.c_int32 * config.num_layers)(*(window or 0 for window in config.windows))
        handle = self._library.pw_create(
            native.Config(
                hidden=config.hidden_size,
                inner=config.intermediate_size,
                layers=config.num_layers,
                heads=config.num_heads,
                kv_heads=config.num_kv_heads,
                head_dim=config.head_dim,
                vocab=config.vocab_size,
                threads=threads,
                format=native.FORMATS[self._quantization],
                kv_format=native.KV_FORMATS[self._kv_dtype],
                norm_eps=config.norm_eps,
                rope_scale=scale,
                inverse_frequencies=(ctypes.c_float * len(frequencies))(*frequencies.tolist()),
                windows=windows,
                embeddings=ctypes.cast(self._embeddings.data_ptr(), ctypes.POINTER(ctypes.c_uint16)),
            )
        )
        if not handle:
            raise MemoryError("no memory for the native model")
        return int(handle)

    def _pack(self, weights: dict[str, Tensor]) -> None:
        for layer in range(self.config.num_layers):
            if self._turned_norm is not None:
                turn_layer(self.config, weights, layer)
            prefix = f"model.layers.{layer}."
            attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
            self._projection(layer, "qkv", weights, [f"{attention}{name}_proj" for name in "qkv"])
            self._projection(layer, "output", weights, [f"{attention}o_proj"])
            self._projection(layer, "gate_up", weights, [f"{mlp}gate_proj", f"{mlp}up_proj"])
            self._projection(layer, "down", weights, [f"{mlp}down_proj"])
            self._norm(layer, "attention", weights.pop(f"{prefix}input_layernorm.weight"))
            self._norm(layer, "mlp", weights.pop(f"{prefix}post_attention_layernorm.weight"))
            if self.config.qk_norm:
                self._norm(layer, "query", weights.pop(f"{attention}q_norm.weight"))
                self._norm(layer, "key", weights.pop(f"{attention}k_norm.weight"))
        self._norm(0, "final", weights.pop("model.norm.weight"))
        head = weights.pop(HEAD, self._embeddings)
        self._pack_projection(0, "head", head.float().contiguous(), None)

    def _projection(self, layer: int, which: str, weights: dict[str, Tensor], names: list[str]) -> None:
        weight = torch.cat([weights.pop(f"{name}.weight").float() for name in names])
        biased = f"{names[0]}.bias" in weights
        bias = torch.cat([weights.pop(f"{name}.bias").float() for name in names]) if biased else None
        self._pack_projection(layer, which, weight, bias)

    def _pack_projection(self, layer: int, which: str, weight: Tensor, bias: Tensor | None) -> None:
        bias_at = None if bias is None else bias.data_ptr()
        rows, columns = weight.shape
        # Rounding the vocabulary projection is most of what weight-only int8 would cost: there it stays bfloat16.
        exact = which == "head" and self._quantization == "int8-weight-only"
        form = native.FORMATS[None if exact else self._quantization]
        at = (self._handle, layer, native.PROJECTIONS[which], form)
        if self._library.pw_set_projection(*at, weight.data_ptr(), bias_at, rows, columns):
            raise MemoryError(f"no memory for the weights of layer {layer}")

    def _norm(self, layer: int, which: str, weight: Tensor) -> None:
        values = weight.float().contiguous()
        self._library.pw_set_norm(self._handle, layer, native.NORMS[which], values.data_ptr(), len(values))
