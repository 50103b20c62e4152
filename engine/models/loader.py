"""From files to a model that can run."""

from collections.abc import Iterator

import torch
from torch import Tensor

from pagewire.engine.attention.reference import ReferenceAttention
from pagewire.engine.models.base import BLOCK_SIZE, Model
from pagewire.engine.models.config import DTYPES, ModelConfig, parse_config
from pagewire.engine.models.decoder import Decoder
from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.files import ModelFiles
from pagewire.engine.models.gguf import GgufFile
from pagewire.engine.models.gguf_model import gguf_config, stream_gguf
from pagewire.engine.models.weights import collect_weights, dummy_tensors, stream_safetensors


def load_config(files: ModelFiles) -> ModelConfig:
    """The model's shape, checked; raises ``ModelError`` for anything that is not supported."""
    if files.gguf is not None:
        return parse_config(gguf_config(GgufFile(files.gguf)))
    return parse_config(files.read_json("config.json"))


def resolve_dtype(config: ModelConfig, dtype: str) -> torch.dtype:
    """The dtype that ``dtype`` ("auto" or one of ``DTYPES``) means for this model."""
    name = config.dtype if dtype == "auto" else dtype
    if name not in DTYPES:
        raise ModelError(f"dtype {name} is not supported, expected auto, {', '.join(DTYPES)}")
    resolved = getattr(torch, name)
    assert isinstance(resolved, torch.dtype)
    return resolved


def load_weights(
    files: ModelFiles, config: ModelConfig, dtype: torch.dtype, device: torch.device, *, dummy: bool = False
) -> dict[str, Tensor]:
    """All weights under their Hugging Face names, dequantized and checked (see ``collect_weights``).

    ``dummy``: random ones instead, without reading any file.
    """
    return collect_weights(dummy_tensors(config) if dummy else _stream(files), config, dtype, device)


def load_model(files: ModelFiles, dtype: str, device: torch.device, *, dummy: bool = False) -> Model:
    """The model in plain torch, ready for ``allocate_kv``. ``dtype`` is "auto" or one of ``DTYPES``."""
    config = load_config(files)
    weights = load_weights(files, config, resolve_dtype(config, dtype), device, dummy=dummy)
    return Decoder(config, weights, ReferenceAttention(BLOCK_SIZE))


def _stream(files: ModelFiles) -> Iterator[tuple[str, Tensor]]:
    return stream_gguf(GgufFile(files.gguf)) if files.gguf is not None else stream_safetensors(files.directory)
