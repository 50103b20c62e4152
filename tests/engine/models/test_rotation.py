"""A turned model is the same model, in float32, for every kind of weight there is."""

import pytest
import torch
from torch import Tensor

from pagewire.engine.attention.reference import ReferenceAttention
from pagewire.engine.batch import Batch
from pagewire.engine.models.base import BLOCK_SIZE
from pagewire.engine.models.config import ModelConfig, parse_config
from pagewire.engine.models.decoder import Decoder
from pagewire.engine.models.rotation import hadamard, turn, turn_ends, turn_layer
from pagewire.engine.models.weights import expected_shapes
from tests.engine.models.paged import make_batch

SHAPE = {
    "model_type": "llama",
    "vocab_size": 50,
    "hidden_size": 128,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def _run(config: ModelConfig, weights: dict[str, Tensor], batch: Batch, indices: Tensor) -> tuple[Tensor, Tensor]:
    model = Decoder(config, weights, ReferenceAttention(BLOCK_SIZE))
    model.allocate_kv(2)
    return model.forward_hidden(batch, indices)


def test_a_hadamard_matrix_undoes_itself_and_spreads_an_outlier_evenly() -> None:
    torch.testing.assert_close(hadamard(64) @ hadamard(64), torch.eye(64))
    outlier = torch.zeros(64)
    outlier[5] = 8.0
    torch.testing.assert_close(turn(outlier).abs(), torch.ones(64))


@pytest.mark.parametrize(
    "changes",
    [{"head_dim": 64}, {"head_dim": 48}, {"attention_bias": True, "mlp_bias": True}, {"model_type": "qwen3"}],
    ids=["a group a head", "part of a head", "biases", "head norms"],
)
def test_a_turned_model_gives_the_same_logits_and_states(changes: dict[str, object]) -> None:
    torch.manual_seed(0)
    config = parse_config(SHAPE | {"torch_dtype": "float32"} | changes)
    weights = {name: torch.randn(shape) / shape[-1] ** 0.5 for name, shape in expected_shapes(config).items()}
    batch = make_batch([(list(range(20)), 0, [0, 1])])
    indices = torch.arange(20)
    plain = _run(config, dict(weights), batch, indices)
    norm = turn_ends(weights)
    for layer in range(config.num_layers):
        turn_layer(config, weights, layer)
    logits, states = _run(config, weights, batch, indices)
    torch.testing.assert_close(logits, plain[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(turn(states) * norm, plain[1], rtol=1e-4, atol=1e-4)
