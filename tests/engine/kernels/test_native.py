"""The native decoder computes what the torch decoder does, on every instruction set that this machine has."""

import random
import sys

import pytest
import torch
from torch import Tensor

from pagewire.engine.attention.reference import ReferenceAttention
from pagewire.engine.kernels.bindings import processor_flags
from pagewire.engine.kernels.build import ISA_NEEDS
from pagewire.engine.models.base import BLOCK_SIZE
from pagewire.engine.models.config import ModelConfig, parse_config
from pagewire.engine.models.decoder import Decoder
from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.native import NativeDecoder
from pagewire.engine.models.weights import expected_shapes
from tests.engine.models.paged import make_batch

ISAS = [isa for isa, needed in ISA_NEEDS.items() if needed <= processor_flags()]
NUM_BLOCKS = 320
SHAPE = {
    "model_type": "llama",
    "vocab_size": 150,  # not a whole number of panels
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 8192,
}
# Rows of the steps of three sequences: prompts in chunks beside decodes, then all decode, then one alone.
LENGTHS = (33, 290, 700)
STEPS = [
    [(0, 0, 31), (1, 0, 100)],
    [(0, 31, 32), (1, 100, 289), (2, 0, 333)],
    [(2, 333, 698)],
    [(0, 32, 33), (1, 289, 290), (2, 698, 699)],
    [(2, 699, 700)],
]
# Largest difference of a logit, in standard deviations of all: the native code rounds activations to bfloat16.
BF16_TOLERANCE = 0.08
INT8_TOLERANCE = 0.3
INT8_KV_TOLERANCE = 0.2


def random_weights(config: ModelConfig) -> dict[str, Tensor]:
    """Weights that bfloat16 holds exactly, in which norms and biases count."""
    torch.manual_seed(0)
    weights = {}
    for name, shape in expected_shapes(config).items():
        values = torch.randn(shape)
        if "norm" in name:
            values = 1 + values / 4
        elif len(shape) == 2:
            values = values / shape[1] ** 0.5
        weights[name] = values.to(torch.bfloat16).float()
    return weights


class Pair:
    """The same model in torch and in native code, fed the same steps over shuffled blocks."""

    def __init__(
        self, isa: str, quantization: str | None = None, kv_cache_dtype: str = "auto", **changes: object
    ) -> None:
        self.config = parse_config(SHAPE | changes)
        self.oracle = Decoder(self.config, random_weights(self.config), ReferenceAttention(BLOCK_SIZE))
        self.native = NativeDecoder(
            self.config,
            random_weights(self.config),
            quantization=quantization,
            kv_cache_dtype=kv_cache_dtype,
            threads=2,
            isa=isa,
        )
        for model in (self.oracle, self.native):
            model.allocate_kv(NUM_BLOCKS)
        self._free = list(range(NUM_BLOCKS))
        random.Random(1).shuffle(self._free)
        self._tables: dict[int, list[int]] = {}

    def table(self, sequence: int, length: int) -> list[int]:
        table = self._tables.setdefault(sequence, [])
        while len(table) * BLOCK_SIZE < length:
            table.append(self._free.pop())
        return table

    def difference(self, step: list[tuple[int, int, int]]) -> float:
        """The largest difference of a logit, relative; a step's rows are (sequence, first token, past its last)."""
        rows = []
        for sequence, first, end in step:
            ids = torch.randint(self.config.vocab_size, (end - first,)).tolist()
            rows.append((ids, first, self.table(sequence, end)))
        batch = make_batch(rows)
        expected, actual = self.oracle.forward(batch), self.native.forward(batch)
        assert actual.shape == expected.shape
        return float((actual - expected).abs().max() / expected.std())

    def worst(self) -> float:
        return max(self.difference(step) for step in STEPS)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_every_head_size_agrees_with_torch(isa: str, head_dim: int) -> None:
    assert Pair(isa, head_dim=head_dim).worst() < BF16_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (8, 4), (4, 1), (7, 1), (16, 2)])
def test_every_grouping_of_heads_agrees_with_torch(isa: str, heads: int, kv_heads: int) -> None:
    assert Pair(isa, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=16).worst() < BF16_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("window", [5, 16, 100, 600])
def test_a_sliding_window_hides_what_torch_hides(isa: str, window: int) -> None:
    pair = Pair(isa, model_type="mistral", sliding_window=window)
    assert pair.worst() < BF16_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "changes",
    [
        {"attention_bias": True, "mlp_bias": True},
        {"model_type": "qwen2", "tie_word_embeddings": True},
        {"model_type": "qwen3"},
    ],
    ids=["every bias", "qwen2", "qwen3"],
)
def test_biases_and_head_norms_agree_with_torch(isa: str, changes: dict[str, object]) -> None:
    assert Pair(isa, **changes).worst() < BF16_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
def test_a_sequence_of_thousands_of_tokens_agrees_with_torch(isa: str) -> None:
    pair = Pair(isa, num_hidden_layers=1)
    steps = [[(0, 0, 2000)], [(0, 2000, 3999)], [(0, 3999, 4000)], [(0, 4000, 4001), (1, 0, 1)]]
    assert max(pair.difference(step) for step in steps) < BF16_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("quantization", ["int8", "int8-weight-only"])
def test_int8_stays_near_float32(isa: str, quantization: str) -> None:
    assert Pair(isa, quantization, intermediate_size=128).worst() < INT8_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_a_cache_in_int8_stays_near_float32_for_every_head_size(isa: str, head_dim: int) -> None:
    assert Pair(isa, kv_cache_dtype="int8", head_dim=head_dim).worst() < INT8_KV_TOLERANCE


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("heads", "kv_heads", "window"), [(1, 1, 600), (8, 4, 100), (4, 1, 16), (7, 1, 5)])
def test_a_cache_in_int8_knows_groups_of_heads_and_windows(isa: str, heads: int, kv_heads: int, window: int) -> None:
    shape = {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": 16}
    pair = Pair(isa, kv_cache_dtype="int8", model_type="mistral", sliding_window=window, **shape)
    assert pair.worst() < INT8_KV_TOLERANCE


@pytest.mark.parametrize("kv_cache_dtype", ["bfloat16", "int8"])
def test_a_nan_left_in_a_freed_block_does_not_reach_its_next_owner(kv_cache_dtype: str) -> None:
    pair = Pair(ISAS[0], kv_cache_dtype=kv_cache_dtype)
    clean = pair.native.forward(make_batch([([1, 2, 3], 0, [7])]))
    embeddings = pair.native._embeddings
    kept = embeddings[5].clone()
    embeddings[5] = torch.nan
    pair.native.forward(make_batch([([5] * 16, 0, [7])]))
    embeddings[5] = kept
    torch.testing.assert_close(pair.native.forward(make_batch([([1, 2, 3], 0, [7])])), clean, rtol=0, atol=0)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere memory comes when it is touched")
def test_memory_that_is_asked_for_ahead_changes_nothing_and_comes_to_an_end() -> None:
    pair = Pair(ISAS[0])
    step = make_batch([(list(range(40)), 0, [7, 3, 9])])
    before = pair.native.forward(step)
    assert pair.native.prepare_kv(NUM_BLOCKS // 2)
    asked = 1 + sum(iter(lambda: pair.native.prepare_kv(10**9), False))
    assert asked % pair.config.num_layers == 0
    torch.testing.assert_close(pair.native.forward(step), before, rtol=0, atol=0)


def test_logits_depend_on_their_own_row_alone() -> None:
    pair = Pair(ISAS[0])
    alone = pair.native.forward(make_batch([(list(range(20)), 0, [3, 4])]))
    beside = pair.native.forward(make_batch([([9] * 50, 0, [5, 6, 7, 8]), (list(range(20)), 0, [1, 2])]))
    torch.testing.assert_close(beside[50:], alone, rtol=0, atol=1e-5)


def test_hidden_states_are_those_behind_the_logits() -> None:
    pair = Pair(ISAS[0])
    batch = make_batch([(list(range(20)), 0, [3, 4]), (list(range(5)), 0, [1])])
    wanted = torch.tensor([24, 3])
    _, expected = pair.oracle.forward_hidden(batch, wanted)
    logits, hidden = pair.native.forward_hidden(batch, wanted)
    assert float((hidden - expected).abs().max()) < BF16_TOLERANCE
    torch.testing.assert_close(logits, pair.native.forward(batch), rtol=0, atol=0)


def test_a_shape_that_does_not_fit_the_vectors_is_refused_by_name() -> None:
    config = parse_config(SHAPE | {"head_dim": 24})
    with pytest.raises(ModelError, match="head size 24 must be a multiple of 16"):
        NativeDecoder(config, random_weights(config))
