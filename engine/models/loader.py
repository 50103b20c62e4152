"""From files to a model that can run."""

import logging
from collections.abc import Iterator

import torch
from torch import Tensor

from pagewire.engine.attention.reference import ReferenceAttention
from pagewire.engine.kernels.bindings import load_library
from pagewire.engine.kernels.build import BuildError
from pagewire.engine.models.base import BLOCK_SIZE, Model
from pagewire.engine.models.config import DTYPES, ModelConfig, parse_config
from pagewire.engine.models.decoder import Decoder
from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.files import ModelFiles
from pagewire.engine.models.gguf_model import gguf_config, stream_gguf
from pagewire.engine.models.native import NativeDecoder, unsupported
from pagewire.engine.models.weights import collect_weights, dummy_tensors, stream_safetensors

logger = logging.getLogger(__name__)


def load_config(files: ModelFiles) -> ModelConfig:
    """The model's shape, checked; raises ``ModelError`` for anything that is not supported."""
    if files.gguf is not None:
        return parse_config(gguf_config(files.gguf_file))
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


def load_model(
    files: ModelFiles,
    dtype: str,
    device: torch.device,
    *,
    quantization: str | None = None,
    kv_cache_dtype: str = "auto",
    threads: int = 0,
    dummy: bool = False,
) -> Model:
    """The model, ready for ``allocate_kv``: in native code on a CPU in bfloat16 or quantized, else in torch.

    ``dtype`` is "auto" or one of ``DTYPES``, ``quantization`` and ``kv_cache_dtype`` as in
    ``NativeDecoder``; ``threads`` are those of native code (0: as many as torch uses). Raises ``ModelError``.
    """
    config = load_config(files)
    resolved = resolve_dtype(config, dtype)
    obstacle = _native_obstacle(config, resolved, device, quantization)
    if quantization and obstacle:
        raise ModelError(f"--quantization {quantization}: {obstacle}")
    if obstacle and kv_cache_dtype not in ("auto", str(resolved).removeprefix("torch.")):
        raise ModelError(f"--kv-cache-dtype {kv_cache_dtype}: {obstacle}")
    weights = load_weights(files, config, resolved, device, dummy=dummy)
    if obstacle is None:
        return NativeDecoder(config, weights, quantization=quantization, kv_cache_dtype=kv_cache_dtype, threads=threads)
    logger.info("running in torch: %s", obstacle)
    return Decoder(config, weights, ReferenceAttention(BLOCK_SIZE))


def _native_obstacle(
    config: ModelConfig, dtype: torch.dtype, device: torch.device, quantization: str | None
) -> str | None:
    """Why the native code cannot run the model, in words; None when it can."""
    if device.type != "cpu":
        return f"native kernels are for a CPU, not {device.type}"
    if dtype != torch.bfloat16 and not quantization:
        return f"native kernels compute in bfloat16, not {str(dtype).removeprefix('torch.')}"
    try:
        load_library()
    except BuildError as error:
        return f"native kernels are not there: {error}"
    return unsupported(config, quantization)


def _stream(files: ModelFiles) -> Iterator[tuple[str, Tensor]]:
    return stream_gguf(files.gguf_file) if files.gguf is not None else stream_safetensors(files.directory)
