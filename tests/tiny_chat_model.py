"""A random Llama small enough to serve in every test, with the byte tokenizer and its chat template."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.toy_tokenizer import CHATML, IM_END, VOCAB_SIZE, tokenizer_json

NAME = "tiny-chat"
# An answer may run for as long as a test needs it to.
MAX_POSITION = 16_384


def write_tiny_chat_model(directory: Path, **shape: Any) -> Path:
    """Write a Hugging Face directory; ``shape`` replaces values of the configuration."""
    values: dict[str, Any] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": MAX_POSITION,
        "bos_token_id": None,
        "eos_token_id": IM_END,
    }
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**values | shape))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Large enough that greedy choices are clear and depend on the whole prompt.
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.25)
    model.save_pretrained(directory)
    (directory / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    tokenizer_config = {"chat_template": CHATML, "eos_token": "<|im_end|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer_config), encoding="utf-8")
    return directory
