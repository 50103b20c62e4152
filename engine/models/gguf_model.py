"""Models in GGUF files: llama.cpp's metadata and tensor names told in the words of Hugging Face."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.gguf import GgufFile

ARCHITECTURES = ("llama", "qwen2", "qwen3")
ROPE_FACTORS = "rope_freqs.weight"  # Llama 3's scaling, worked out by the converter into one factor per frequency

_OUTER_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def gguf_config(file: GgufFile) -> dict[str, Any]:
    """The file's hyperparameters as a Hugging Face config; raises ``ModelError`` for what cannot be told in one."""
    architecture = str(file.metadata.get("general.architecture"))
    if architecture not in ARCHITECTURES:
        raise ModelError(f"GGUF architecture {architecture} is not supported; supported are {', '.join(ARCHITECTURES)}")
    prefix = architecture + "."
    values = {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
    if values.get("expert_count"):
        raise ModelError(f"{file.path} is a mixture of {values['expert_count']} experts, which is not supported")
    heads, hidden = values.get("attention.head_count"), values.get("embedding_length")
    head_dim = values.get("attention.key_length") or (hidden // heads if heads and hidden else None)
    if values.get("rope.dimension_count", head_dim) != head_dim:
        raise ModelError(f"rope.dimension_count {values['rope.dimension_count']} is not the head size {head_dim}")
    return {
        "model_type": architecture,
        "vocab_size": file.tensors["token_embd.weight"].shape[0] if "token_embd.weight" in file.tensors else None,
        "hidden_size": hidden,
        "intermediate_size": values.get("feed_forward_length"),
        "num_hidden_layers": values.get("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": values.get("attention.head_count_kv"),
        "head_dim": head_dim,
        "max_position_embeddings": values.get("context_length"),
        "rms_norm_eps": values.get("attention.layer_norm_rms_epsilon"),
        "rope_parameters": _rope(file, values),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_output.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_down.bias" in file.tensors,
        "dtype": "bfloat16",
        "eos_token_id": file.metadata.get("tokenizer.ggml.eos_token_id"),
    }


def _rope(file: GgufFile, values: Mapping[str, Any]) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_theta": values.get("rope.freq_base", 10_000.0), "rope_type": "default"}
    if ROPE_FACTORS in file.tensors:
        return rope | {"rope_type": "factors", "factors": file.tensor(ROPE_FACTORS).tolist()}
    kind = values.get("rope.scaling.type", "none")
    if kind == "none" and values.get("rope.scale_linear", 1.0) != 1.0:
        return rope | {"rope_type": "linear", "factor": values["rope.scale_linear"]}
    if kind == "none":
        return rope
    scaling = {
        "rope_type": kind,
        "factor": values.get("rope.scaling.factor"),
        "original_max_position_embeddings": values.get("rope.scaling.original_context_length"),
        "attention_factor": values.get("rope.scaling.attn_factor"),
    }
    return rope | {name: value for name, value in scaling.items() if value is not None}


def stream_gguf(file: GgufFile) -> Iterator[tuple[str, Tensor]]:
    """Every tensor, dequantized, under its Hugging Face name (unknown names are passed on, to be refused)."""
    heads = {"attn_q": int(file.metadata.get("llama.attention.head_count", 0))}
    heads["attn_k"] = int(file.metadata.get("llama.attention.head_count_kv", heads["attn_q"]))
    for name in file.tensors:
        if name == ROPE_FACTORS:
            continue
        tensor = file.tensor(name)
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
        if match is None:
            stem, _, suffix = name.rpartition(".")
            yield f"{_OUTER_NAMES.get(stem, stem)}.{suffix}", tensor
            continue
        layer, stem, suffix = match.groups()
        if heads.get(stem):
            tensor = _unpermute(tensor, heads[stem])
        yield f"model.layers.{layer}.{_LAYER_NAMES.get(stem, stem)}.{suffix}", tensor


def _unpermute(tensor: Tensor, heads: int) -> Tensor:
    """Undo the interleaving that llama.cpp's converter applies to q and k of the llama architecture.

    There dimension pairs of the rotation lie side by side; here the halves of a head are paired.
    """
    rows = tensor.shape[0] // heads
    return tensor.reshape(heads, rows // 2, 2, *tensor.shape[1:]).swapaxes(1, 2).reshape(tensor.shape).contiguous()
