"""Tiny random checkpoints made with transformers, which also says what they must compute."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCAB_SIZE = 96
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_YARN_ROPE = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 32}

_CLASSES: dict[type[PreTrainedConfig], type[PreTrainedModel]] = {
    LlamaConfig: LlamaForCausalLM,
    MistralConfig: MistralForCausalLM,
    Qwen2Config: Qwen2ForCausalLM,
    Qwen3Config: Qwen3ForCausalLM,
}

CONFIGS: dict[str, PreTrainedConfig] = {
    "llama 2": LlamaConfig(**_SHAPE | {"num_key_value_heads": 4}),
    "llama with grouped heads and tied embeddings": LlamaConfig(**_SHAPE | {"tie_word_embeddings": True}),
    "llama with every bias": LlamaConfig(**_SHAPE, attention_bias=True, mlp_bias=True),
    "llama with wide heads": LlamaConfig(**_SHAPE, head_dim=12),
    "llama 3 rope": LlamaConfig(**_SHAPE, rope_parameters=_LLAMA3_ROPE),
    "llama with linear rope": LlamaConfig(
        **_SHAPE, rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}
    ),
    "llama with yarn rope": LlamaConfig(**_SHAPE, rope_parameters=_YARN_ROPE),
    "mistral without window": MistralConfig(**_SHAPE, sliding_window=None),
    "mistral with a window": MistralConfig(**_SHAPE, sliding_window=9),
    "qwen2": Qwen2Config(**_SHAPE),
    "qwen2 with a window in its last layer": Qwen2Config(
        **_SHAPE, use_sliding_window=True, sliding_window=5, max_window_layers=2
    ),
    "qwen3": Qwen3Config(**_SHAPE, head_dim=16),
    "qwen3 with attention bias, tied": Qwen3Config(
        **_SHAPE | {"tie_word_embeddings": True}, head_dim=8, attention_bias=True
    ),
}


@dataclass(frozen=True)
class Answer:
    """What transformers makes of one prompt: all ids, and the logits at every position but the last."""

    ids: list[int]
    logits: torch.Tensor


def make_reference(config: PreTrainedConfig) -> PreTrainedModel:
    """A random float32 model whose choices are clear and in which every weight (biases and norms too) counts."""
    torch.manual_seed(0)
    model: PreTrainedModel = _CLASSES[type(config)](config).train(False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.25)
    return model


def save(model: PreTrainedModel, directory: Path, **options: Any) -> Path:
    """Write config and safetensors to ``directory``."""
    model.save_pretrained(directory, **options)
    return directory


def answer(model: PreTrainedModel, prompt: list[int], new_tokens: int) -> Answer:
    """Greedy continuation by transformers."""
    given = torch.tensor([prompt])
    with torch.inference_mode():
        generate: Any = model.generate  # mixed in without types
        ids = generate(
            given, attention_mask=torch.ones_like(given), max_new_tokens=new_tokens, do_sample=False, pad_token_id=0
        )
        return Answer(ids[0].tolist(), model(ids[:, :-1]).logits[0])
