"""Weights as named tensors: streamed from the files, checked against what the model needs, under Hugging Face names."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pagewire.engine.models.config import ModelConfig
from pagewire.engine.models.errors import ModelError

EMBEDDINGS = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
# Buffers that old checkpoints carry although they follow from the config.
DERIVED_SUFFIXES = (".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached")


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor that a model of this config needs."""
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {EMBEDDINGS: (config.vocab_size, hidden), "model.norm.weight": (hidden,)}
    if not config.tied_embeddings:
        shapes[HEAD] = (config.vocab_size, hidden)
    for layer in range(config.num_layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in _layer_shapes(config).items()}
    return shapes


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    linears = {
        "self_attn.q_proj": (query, hidden, config.qkv_bias),
        "self_attn.k_proj": (kv, hidden, config.qkv_bias),
        "self_attn.v_proj": (kv, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, query, config.output_bias),
        "mlp.gate_proj": (inner, hidden, config.mlp_bias),
        "mlp.up_proj": (inner, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, inner, config.mlp_bias),
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (rows, columns, bias) in linears.items():
        shapes[f"{name}.weight"] = (rows, columns)
        if bias:
            shapes[f"{name}.bias"] = (rows,)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        shapes[f"{norm}.weight"] = (hidden,)
    if config.qk_norm:
        shapes |= {"self_attn.q_norm.weight": (config.head_dim,), "self_attn.k_norm.weight": (config.head_dim,)}
    return shapes


def collect_weights(
    tensors: Iterator[tuple[str, Tensor]], config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """Take the stream apart by name, in ``dtype`` on ``device``; one tensor at a time is held in both forms.

    Raises ``ModelError`` naming the first tensor that is missing, left over, given twice or of another shape. With
    tied embeddings ``lm_head.weight`` is in the result only if the checkpoint has one that differs from them.
    """
    expected = expected_shapes(config)
    optional = {HEAD: expected[EMBEDDINGS]} if config.tied_embeddings else {}
    weights: dict[str, Tensor] = {}
    for name, tensor in tensors:
        if name.endswith(DERIVED_SUFFIXES):
            continue
        shape = expected.get(name) or optional.get(name)
        if shape is None:
            raise ModelError(f"the checkpoint has a tensor that {config.architecture} does not use: {name}")
        if name in weights:
            raise ModelError(f"the checkpoint has the tensor {name} twice")
        if tuple(tensor.shape) != shape:
            raise ModelError(f"tensor {name} has shape {list(tensor.shape)}, expected {list(shape)}")
        if not tensor.is_floating_point():
            raise ModelError(f"tensor {name} has dtype {tensor.dtype}, expected a floating point one")
        weights[name] = tensor.to(device, dtype)
    missing = [name for name in expected if name not in weights]
    if missing:
        raise ModelError(f"the checkpoint lacks the tensor {missing[0]} ({len(missing)} missing in all)")
    if config.tied_embeddings and HEAD in weights and torch.equal(weights[HEAD], weights[EMBEDDINGS]):
        del weights[HEAD]
    return weights


def dummy_tensors(config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """Random tensors (the same ones every time) of the right names and shapes, to try a shape without its weights."""
    generator = torch.Generator().manual_seed(0)
    for name, shape in expected_shapes(config).items():
        yield name, torch.ones(shape) if name.endswith("norm.weight") else torch.randn(shape, generator=generator) / 50


def stream_safetensors(directory: Path) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the directory's safetensors files, memory-mapped, in the order of the files."""
    for path in _safetensors_files(directory):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (safe_open is no mapping)
                    yield name, file.get_tensor(name)
        except SafetensorError as error:
            raise ModelError(f"{path} is not a readable safetensors file: {error}") from error


def _safetensors_files(directory: Path) -> list[Path]:
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{index} is not a readable index of weights: {error!r}") from error
        absent = [name for name in names if not (directory / name).is_file()]
        if absent:
            raise ModelError(f"{index} names {absent[0]}, which is not there")
        return [directory / name for name in names]
    single = directory / "model.safetensors"
    if not single.is_file():
        raise ModelError(f"{directory} has no model.safetensors and no model.safetensors.index.json")
    return [single]
