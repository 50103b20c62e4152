"""Writes GGUF files the way llama.cpp's converter does, from a transformers model."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from transformers import PreTrainedModel

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOKENS = ["<s>", "</s>", "<tool>", "a", "b", "1", "2", "Ġ", "Ċ", "ab", "ĠĠ", "Ġa", "Ġ1", "12", "Ã", "©"]
TOKEN_TYPES = [3, 3, 4, *[1] * 13]
MERGES = ["a b", "Ġ Ġ", "Ġ a", "Ġ 1", "1 2"]
TOKENIZER: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "default",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": TOKEN_TYPES,
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.chat_template": "{{ messages }}",
    "tokenizer.chat_template.tool_use": "{{ tools }}",
}


def write_model(path: Path, model: PreTrainedModel, extra: Mapping[str, Any] = TOKENIZER) -> Path:
    """The model's config and weights (float32), and ``extra`` metadata."""
    config = model.config
    architecture = config.model_type
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        values = tensor.numpy()
        stem, suffix = name.rsplit(".", 1)
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        target = _NAMES.get(stem)
        if target is None:
            _, _, layer, inner = stem.split(".", 3)
            if architecture == "llama" and _NAMES[inner] in heads:
                values = _permute(values, heads[_NAMES[inner]])
            target = f"blk.{layer}.{_NAMES[inner]}"
        writer.add_tensor(f"{target}.{suffix}", values)
    _finish(writer, extra)
    return path


def write_metadata(path: Path, metadata: Mapping[str, Any]) -> Path:
    """A file with nothing but metadata."""
    _finish(gguf.GGUFWriter(path, "llama"), metadata)
    return path


def _finish(writer: gguf.GGUFWriter, metadata: Mapping[str, Any]) -> None:
    adders: dict[type, Callable[[str, Any], None]] = {
        str: writer.add_string,
        bool: writer.add_bool,
        int: writer.add_uint32,
        list: writer.add_array,
    }
    for key, value in metadata.items():
        adders[type(value)](key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _permute(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """The converter's interleaving of rotary pairs."""
    split = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(values.shape))
