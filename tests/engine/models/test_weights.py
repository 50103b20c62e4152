"""Weights are streamed from one or many files; anything unexpected is refused by the tensor's name."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pagewire.engine.models.config import parse_config
from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.files import resolve_model
from pagewire.engine.models.loader import load_config, load_model, load_weights
from pagewire.engine.models.weights import collect_weights, dummy_tensors, expected_shapes, stream_safetensors
from tests.engine.models import paged, tiny

CPU = torch.device("cpu")
CONFIG = parse_config(tiny.CONFIGS["qwen2"].to_dict())
TIED = parse_config(tiny.CONFIGS["llama with grouped heads and tied embeddings"].to_dict())


def collect(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return collect_weights(iter(tensors.items()), CONFIG, torch.float32, CPU)


@pytest.fixture
def tensors() -> dict[str, Tensor]:
    return dict(dummy_tensors(CONFIG))


def test_a_complete_checkpoint_is_taken_in_the_dtype_asked_for(tensors: dict[str, Tensor]) -> None:
    weights = collect_weights(iter(tensors.items()), CONFIG, torch.bfloat16, CPU)

    assert {name: tuple(weight.shape) for name, weight in weights.items()} == expected_shapes(CONFIG)
    assert all(weight.dtype is torch.bfloat16 for weight in weights.values())


def test_a_leftover_tensor_is_refused(tensors: dict[str, Tensor]) -> None:
    tensors["model.layers.0.self_attn.o_proj.bias"] = torch.zeros(32)

    with pytest.raises(ModelError, match=r"does not use: model\.layers\.0\.self_attn\.o_proj\.bias"):
        collect(tensors)


def test_a_missing_tensor_is_refused(tensors: dict[str, Tensor]) -> None:
    del tensors["model.layers.1.mlp.up_proj.weight"]

    with pytest.raises(ModelError, match=r"lacks the tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        collect(tensors)


def test_a_tensor_of_another_shape_is_refused(tensors: dict[str, Tensor]) -> None:
    tensors["model.norm.weight"] = torch.ones(31)

    with pytest.raises(ModelError, match=r"model\.norm\.weight has shape \[31\], expected \[32\]"):
        collect(tensors)


def test_a_tensor_of_integers_is_refused(tensors: dict[str, Tensor]) -> None:
    tensors["model.norm.weight"] = torch.ones(32, dtype=torch.int8)

    with pytest.raises(ModelError, match=r"model\.norm\.weight has dtype torch\.int8"):
        collect(tensors)


def test_a_tensor_given_twice_is_refused(tensors: dict[str, Tensor]) -> None:
    twice = [*tensors.items(), ("model.norm.weight", tensors["model.norm.weight"])]

    with pytest.raises(ModelError, match=r"model\.norm\.weight twice"):
        collect_weights(iter(twice), CONFIG, torch.float32, CPU)


def test_rotary_buffers_of_old_checkpoints_are_skipped(tensors: dict[str, Tensor]) -> None:
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)

    assert set(collect(tensors)) == set(expected_shapes(CONFIG))


def test_a_head_beside_tied_embeddings_counts_only_if_it_differs() -> None:
    tensors = dict(dummy_tensors(TIED))
    embeddings = tensors["model.embed_tokens.weight"]

    same = collect_weights(iter((tensors | {"lm_head.weight": embeddings}).items()), TIED, torch.float32, CPU)
    other = collect_weights(iter((tensors | {"lm_head.weight": embeddings + 1}).items()), TIED, torch.float32, CPU)

    assert "lm_head.weight" not in same
    assert "lm_head.weight" in other


def test_a_sharded_checkpoint_equals_a_single_file(tmp_path: Path) -> None:
    reference = tiny.make_reference(tiny.CONFIGS["qwen3"])
    sharded = tiny.save(reference, tmp_path / "sharded", max_shard_size="20KB")
    single = tiny.save(reference, tmp_path / "single")
    assert len(list(sharded.glob("*.safetensors"))) > 2

    weights = [
        load_weights(files, load_config(files), torch.float32, CPU)
        for files in (resolve_model(str(sharded)), resolve_model(str(single)))
    ]

    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_an_index_that_names_an_absent_file_is_refused(tmp_path: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(ModelError, match=r"model-00001-of-00001\.safetensors, which is not there"):
        list(stream_safetensors(tmp_path))


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weight_map": 1}'])
def test_an_index_that_makes_no_sense_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(content)

    with pytest.raises(ModelError, match="is not a readable index"):
        list(stream_safetensors(tmp_path))


def test_a_directory_without_safetensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model\.safetensors"):
        list(stream_safetensors(tmp_path))


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    save_file({"model.norm.weight": torch.ones(32)}, tmp_path / "whole")
    (tmp_path / "model.safetensors").write_bytes((tmp_path / "whole").read_bytes()[:-8])

    with pytest.raises(ModelError, match=r"model\.safetensors is not a readable safetensors file"):
        list(stream_safetensors(tmp_path))


def test_every_stored_tensor_is_streamed_once(tmp_path: Path) -> None:
    directory = tiny.save(tiny.make_reference(tiny.CONFIGS["qwen2"]), tmp_path)

    names = [name for name, _ in stream_safetensors(directory)]

    assert sorted(names) == sorted(load_file(directory / "model.safetensors"))


def test_dummy_weights_make_a_model_that_runs(tmp_path: Path) -> None:
    tiny.CONFIGS["qwen3"].save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(
        json.dumps(json.loads((tmp_path / "config.json").read_text()) | {"architectures": ["Qwen3ForCausalLM"]})
    )

    model = load_model(resolve_model(str(tmp_path)), "float32", CPU, dummy=True)
    model.allocate_kv(paged.NUM_BLOCKS)

    assert paged.generate(model, [[1, 2, 3]], 2)[0].done
