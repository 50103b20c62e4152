"""A model in a GGUF file computes what its original computes."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pagewire.engine.models.config import parse_config
from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.files import resolve_model
from pagewire.engine.models.gguf import GgufFile
from pagewire.engine.models.gguf_model import gguf_config
from pagewire.engine.models.loader import load_model
from tests.engine.models import gguf_file, paged, tiny

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.mark.parametrize(
    "name",
    [
        "llama 2",
        "llama with grouped heads and tied embeddings",
        "llama with wide heads",
        "qwen2",
        "qwen3",
    ],
)
def test_a_converted_model_gives_the_tokens_and_logits_of_its_original(tmp_path: Path, name: str) -> None:
    reference = tiny.make_reference(tiny.CONFIGS[name])
    answer = tiny.answer(reference, PROMPT, 8)
    path = gguf_file.write_model(tmp_path / "model.gguf", reference)

    model = load_model(resolve_model(str(path)), "float32", torch.device("cpu"))
    model.allocate_kv(paged.NUM_BLOCKS)
    sequence = paged.generate(model, [PROMPT], 8)[0]

    assert sequence.ids == answer.ids
    torch.testing.assert_close(torch.stack(sequence.logits), answer.logits, rtol=0, atol=1e-4)


def test_the_dtype_of_a_gguf_file_is_bfloat16(tmp_path: Path) -> None:
    reference = tiny.make_reference(tiny.CONFIGS["qwen2"])

    config = parse_config(gguf_config(GgufFile(gguf_file.write_model(tmp_path / "model.gguf", reference))))

    assert config.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"general.architecture": "gemma3"}, "GGUF architecture gemma3 is not supported"),
        ({"general.architecture": "llama", "llama.expert_count": 8}, "mixture of 8 experts"),
        (
            {"general.architecture": "llama", "llama.attention.key_length": 64, "llama.rope.dimension_count": 32},
            r"rope\.dimension_count 32 is not the head size 64",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, metadata: dict[str, Any], words: str
) -> None:
    file = GgufFile(gguf_file.write_metadata(tmp_path / "model.gguf", {}))
    monkeypatch.setattr(file, "metadata", metadata)

    with pytest.raises(ModelError, match=words):
        gguf_config(file)


def test_frequency_factors_in_the_file_become_the_rope(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reference = tiny.make_reference(tiny.CONFIGS["llama 2"])
    file = GgufFile(gguf_file.write_model(tmp_path / "model.gguf", reference))
    monkeypatch.setattr(file, "tensors", dict(file.tensors) | {"rope_freqs.weight": None})
    monkeypatch.setattr(file, "tensor", lambda name: torch.tensor([1.0, 2.0, 4.0, 8.0]))

    rope = parse_config(gguf_config(file)).rope

    assert (rope.kind, rope.factors) == ("factors", (1.0, 2.0, 4.0, 8.0))
