from dataclasses import replace
from typing import Any

import pytest

from pagewire.engine.config import read_config
from pagewire.engine.kv_size import num_kv_blocks
from pagewire.engine.models.config import parse_config
from pagewire.engine.models.errors import ModelError
from pagewire.engine.step_memory import step_bytes

SHAPE = parse_config(
    {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 128_000,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096,
    }
)
WITH_SMALL_VOCABULARY = replace(SHAPE, vocab_size=1000)


def test_the_peak_at_the_logits_is_all_of_them_in_float32_a_part_in_the_dtype_copies_and_one_pass() -> None:
    stream = 2048 * 2048 * 2
    logits, part = 2048 * 128_000 * 4, 512 * 128_000 * 2
    copies, draws = 2 * 256 * 128_000 * 4, 6 * 256 * 128_000 * 4
    log_probabilities = 3 * 2**26 * 4
    assert log_probabilities > draws
    assert step_bytes(SHAPE, 2, 2048, 256) == stream + logits + part + copies + log_probabilities


def test_the_peak_inside_a_layer_is_at_the_gated_projections() -> None:
    stream, normed, gated = 2048, 2048, 4 * 8192
    assert step_bytes(WITH_SMALL_VOCABULARY, 2, 2048, 16) == 2048 * 2 * (2 * stream + normed + gated)


def test_no_pass_is_larger_than_the_step() -> None:
    assert step_bytes(SHAPE, 4, 1, 256) == 2048 * 4 + 128_000 * (4 + 4 + 2 * 4 + 6 * 4)


def blocks(free: int, **options: Any) -> int:
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return num_kv_blocks(read_config(["model", *arguments]), 100, free, 4096, 256, 700)


def test_what_a_step_needs_is_no_part_of_the_pool() -> None:
    assert blocks(1700) == 10


def test_a_pool_given_in_bytes_or_blocks_is_as_large_as_told() -> None:
    assert blocks(1700, kv_cache_memory=1500) == 15
    assert blocks(1700, num_kv_blocks=1000) == 1000


def test_who_has_no_room_beside_the_steps_is_told_what_to_lower() -> None:
    with pytest.raises(ModelError, match=r"0 bytes available.*may take 700 bytes.*--max-num-batched-tokens"):
        blocks(699)
