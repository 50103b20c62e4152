"""GGUF files are read without surprises: metadata, every kind of tensor, and clear refusals."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.gguf import GgufFile
from tests.engine.models import gguf_file

Kind = gguf.GGMLQuantizationType


def write_tensor(path: Path, kind: Kind) -> np.ndarray[Any, Any]:
    """One tensor "weight" [4, 64] of the given kind after an odd-sized one; returns what it stands for."""
    values = np.random.default_rng(0).standard_normal((4, 64), np.float32)
    stored = gguf.quantize(values, kind)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("first", np.ones(3, np.float32))
    writer.add_tensor("weight", stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return gguf.dequantize(stored, kind)


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q8_0])
def test_a_tensor_of_every_common_kind_is_dequantized(tmp_path: Path, kind: Kind) -> None:
    meant = write_tensor(tmp_path / "model.gguf", kind)

    tensor = GgufFile(tmp_path / "model.gguf").tensor("weight")

    assert tensor.shape == (4, 64)
    torch.testing.assert_close(tensor.float(), torch.from_numpy(meant.copy()), rtol=0, atol=0)


def test_metadata_are_plain_values(tmp_path: Path) -> None:
    metadata = {"a.text": "é", "a.flag": True, "a.count": 7, "a.words": ["x", "yz"], "a.numbers": [1, 2, 3]}

    file = GgufFile(gguf_file.write_metadata(tmp_path / "model.gguf", metadata))

    assert metadata.items() <= dict(file.metadata).items()


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    write_tensor(tmp_path / "whole.gguf", Kind.F32)
    path = tmp_path / "cut.gguf"
    path.write_bytes((tmp_path / "whole.gguf").read_bytes()[:-40])

    with pytest.raises(ModelError, match=r"cut\.gguf is cut short: tensor 'weight'"):
        GgufFile(path).tensor("weight")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 something else entirely", b"GGUF\x03\x00\x00\x00\xff"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(content)

    with pytest.raises(ModelError, match=r"other\.gguf is not a readable GGUF file"):
        GgufFile(path)
