"""Configs of both forms are read alike; what is not supported is refused by name."""

from typing import Any

import pytest

from pagewire.engine.models.config import parse_config
from pagewire.engine.models.errors import ModelError
from tests.engine.models import tiny

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}
QWEN2 = LLAMA | {"architectures": ["Qwen2ForCausalLM"]}
MISTRAL = LLAMA | {"architectures": ["MistralForCausalLM"]}
LLAMA3_NUMBERS = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def test_old_and_new_names_of_rope_and_dtype_mean_the_same() -> None:
    old = LLAMA | {
        "rope_theta": 500.0,
        "rope_scaling": LLAMA3_NUMBERS | {"rope_type": "llama3"},
        "torch_dtype": "bfloat16",
    }
    new = LLAMA | {
        "rope_parameters": LLAMA3_NUMBERS | {"rope_type": "llama3", "rope_theta": 500.0},
        "dtype": "bfloat16",
    }

    assert parse_config(old) == parse_config(new)
    assert parse_config(old).rope.theta == 500.0
    assert parse_config(old).dtype == "bfloat16"


def test_the_oldest_name_of_the_rope_type_is_understood() -> None:
    config = parse_config(LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.0}})

    assert (config.rope.kind, config.rope.scaling) == ("linear", {"factor": 2.0})


@pytest.mark.parametrize("name", list(tiny.CONFIGS))
def test_what_transformers_writes_is_read_with_its_sizes(name: str) -> None:
    source = tiny.CONFIGS[name]
    config = parse_config(source.to_dict())

    assert config.architecture == source.model_type
    assert config.num_kv_heads == source.num_key_value_heads
    assert config.head_dim == (getattr(source, "head_dim", None) or 8)
    assert config.tied_embeddings == source.tie_word_embeddings


def test_missing_sizes_follow_from_others() -> None:
    config = parse_config(LLAMA)

    assert (config.num_kv_heads, config.head_dim) == (4, 8)
    assert (config.rope.theta, config.rope.kind) == (10_000.0, "default")


def test_mistral_has_its_window_in_every_layer_and_qwen2_only_where_asked() -> None:
    qwen = QWEN2 | {"sliding_window": 8, "max_window_layers": 3}

    assert parse_config(MISTRAL | {"sliding_window": 8}).windows == (8, 8, 8, 8)
    assert parse_config(MISTRAL | {"sliding_window": None}).windows == (None,) * 4
    assert parse_config(qwen).windows == (None,) * 4
    assert parse_config(qwen | {"use_sliding_window": True}).windows == (None, None, None, 8)


def test_layer_types_decide_which_layers_have_the_window() -> None:
    types = ["sliding_attention", "full_attention"] * 2

    config = parse_config(QWEN2 | {"sliding_window": 8, "use_sliding_window": True, "layer_types": types})

    assert config.windows == (8, None, 8, None)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel is not supported"),
        ({"architectures": None, "model_type": "phi3"}, "phi3 is not supported"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rope type 'longrope' is not supported"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope type 'dynamic' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "needs the number low_freq_factor"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "per layer type"),
        ({"rope_parameters": {"rope_type": "factors", "factors": [1.0]}}, "1 frequency factors, expected 4"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config 'gptq'"),
        ({"dtype": "float64"}, "dtype float64"),
        ({"num_key_value_heads": 3}, "not a multiple"),
        ({"hidden_size": None}, "hidden_size must be a positive integer, not None"),
        ({"architectures": ["Qwen2ForCausalLM"], "layer_types": ["linear_attention"] * 4}, "'linear_attention'"),
        ({"architectures": ["Qwen2ForCausalLM"], "layer_types": ["full_attention"]}, "1 entries for 4 layers"),
        ({"architectures": ["Qwen2ForCausalLM"], "layer_types": ["sliding_attention"] * 4}, "sliding_window is not"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        parse_config(LLAMA | values)
