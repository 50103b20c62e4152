"""Puts an engine together from its configuration: model, KV pool, scheduler, core."""

import logging
import time
from dataclasses import dataclass

import torch
from msgspec import structs

from pagewire.engine.config import EngineConfig
from pagewire.engine.core import Admission, EngineCore
from pagewire.engine.device import Device, physical_cores, pick_device
from pagewire.engine.kv_size import num_kv_blocks
from pagewire.engine.models.base import BLOCK_SIZE
from pagewire.engine.models.base import Model as ModelOnDevice
from pagewire.engine.models.config import ModelConfig
from pagewire.engine.models.describe import describe_model, model_pooling
from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.files import resolve_model
from pagewire.engine.models.loader import load_config, load_model, resolve_dtype
from pagewire.engine.models.native import NativeDecoder
from pagewire.engine.runner import Runner
from pagewire.engine.scheduler import Scheduler, SchedulerConfig
from pagewire.engine.step_memory import step_bytes
from pagewire.engine.vocabulary import Vocabulary
from pagewire.protocol.messages import Limits, Model

logger = logging.getLogger(__name__)

# A CPU engine shares its memory with the frontend, the clients and the page cache.
CPU_MEMORY_SHARE = 0.4
# Of the KV cache: what an idle engine keeps ready for use, a quarter of the pool at most. The rest of a large pool
# takes no memory until it is first used.
KV_BYTES_AHEAD = 1 << 30


@dataclass(frozen=True, slots=True)
class Engine:
    """A loaded engine: its core, and what it tells frontends about itself."""

    core: EngineCore
    model: Model
    limits: Limits


def build_engine(config: EngineConfig) -> Engine:
    """Load the model and make everything around it; raises ``ModelError`` with one line for the user."""
    device = pick_device(config.device)
    threads = config.threads or physical_cores()
    torch.set_num_threads(threads)
    files = resolve_model(config.model, config.revision)
    shape = load_config(files)
    logger.info("loading %s on %s", files.path, device.name)
    quantization = None if config.quantization == "none" else config.quantization
    model = load_model(
        files,
        config.dtype,
        device.torch,
        quantization=quantization,
        kv_cache_dtype=config.kv_cache_dtype,
        threads=threads,
        dummy=config.load_format == "dummy",
    )
    if isinstance(model, NativeDecoder):
        # It has threads of its own. What is left to torch is small, and its threads would spin on the same cores.
        torch.set_num_threads(1)
    described = describe_model(files, shape, resolve_dtype(shape, config.dtype), created=int(time.time()))
    limits = _decide_limits(config, shape, model, device)
    model.allocate_kv(limits.num_blocks)
    pooling = model_pooling(files) if config.pooling == "auto" else config.pooling
    runner = Runner(
        model,
        limits.max_num_seqs,
        limits.max_model_len,
        described.eos_token_ids,
        device.torch,
        pooling,
        min(KV_BYTES_AHEAD // model.kv_bytes_per_block(), limits.num_blocks // 4),
    )
    described = structs.replace(described, embedding_size=runner.embedding_size, quantization=quantization)
    if config.warmup:
        runner.warm_up(min(limits.max_num_batched_tokens, limits.max_model_len, limits.num_blocks * BLOCK_SIZE))
    logger.info(
        "model %s in %s%s, %d tokens of context, KV cache of %d blocks (%d tokens, %.2f GiB), up to %d sequences",
        described.name,
        described.dtype,
        f" with {quantization} weights" if quantization else "",
        limits.max_model_len,
        limits.num_blocks,
        limits.num_blocks * BLOCK_SIZE,
        limits.num_blocks * model.kv_bytes_per_block() / 2**30,
        limits.max_num_seqs,
    )
    return Engine(_build_core(config, runner, described, limits, is_cpu=device.torch.type == "cpu"), described, limits)


def _decide_limits(config: EngineConfig, shape: ModelConfig, model: ModelOnDevice, device: Device) -> Limits:
    is_cpu = device.torch.type == "cpu"
    max_num_seqs = config.max_num_seqs or (64 if is_cpu else 256)
    max_model_len = config.max_model_len or shape.max_position
    if max_model_len > shape.max_position:
        raise ModelError(
            f"--max-model-len: expected at most {shape.max_position}, the model's positions, got {max_model_len}"
        )
    max_num_batched_tokens = config.max_num_batched_tokens or (512 if is_cpu else 2048)
    free = device.free_memory(CPU_MEMORY_SHARE if is_cpu else config.gpu_memory_utilization)
    # On a CPU, steps live on the share that is not taken.
    element_size = resolve_dtype(shape, config.dtype).itemsize
    for_steps = 0 if is_cpu else step_bytes(shape, element_size, max_num_batched_tokens, max_num_seqs)
    num_blocks = num_kv_blocks(config, model.kv_bytes_per_block(), free, max_model_len, max_num_seqs, for_steps)
    return Limits(
        # A sequence that the whole pool cannot hold would only be found out half-way.
        max_model_len=min(max_model_len, num_blocks * BLOCK_SIZE),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_logprobs=config.max_logprobs,
        block_size=BLOCK_SIZE,
        num_blocks=num_blocks,
    )


def _build_core(config: EngineConfig, runner: Runner, described: Model, limits: Limits, *, is_cpu: bool) -> EngineCore:
    scheduler = Scheduler(
        SchedulerConfig(
            num_blocks=limits.num_blocks,
            max_num_seqs=limits.max_num_seqs,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            max_mixed_prefill_tokens=config.max_mixed_prefill_tokens or (128 if is_cpu else None),
            block_size=limits.block_size,
            prefix_caching=config.enable_prefix_caching,
            policy=config.scheduling_policy,
        )
    )
    admission = Admission(config.max_num_queued_reqs, config.max_num_queued_tokens)
    vocabulary = Vocabulary(described.tokenizer_json, described.vocab_size)
    return EngineCore(scheduler, runner, vocabulary, frozenset(described.eos_token_ids), limits, admission)
