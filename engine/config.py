"""The engine's configuration: built once at start, never changed.

What the engine decides from it (number of blocks, maximum length) is ``pagewire.protocol.messages.Limits``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pagewire.protocol.addresses import address, check_exposure, default_address
from pagewire.protocol.option_fields import computed_option, option, required_option
from pagewire.protocol.option_names import FRONTEND_OPTIONS
from pagewire.protocol.option_types import choice, integer, number, seconds, size, switch, text
from pagewire.protocol.options import read_options

Pooling = Literal["auto", "last", "mean"]
DType = Literal["auto", "float32", "bfloat16", "float16"]
LoadFormat = Literal["auto", "dummy"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
Quantization = Literal["none", "int8", "int8-weight-only"]
KvCacheDType = Literal["auto", "bfloat16", "int8"]
SchedulingPolicy = Literal["fcfs", "priority"]

_MODEL, _CACHE, _SCHEDULING, _PROCESS = "Model", "KV cache", "Scheduling", "Process"

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Every option of ``pagewire-engine``. None means that the engine decides from model and device."""

    model: str = required_option(
        text("a model"),
        group=_MODEL,
        help="Hugging Face directory or hub id, GGUF file, or demo",
        aliases=("--model-path", "--model-id"),
        positional=True,
    )
    revision: str | None = option(
        text("a branch, tag or commit"), None, group=_MODEL, help="branch, tag or commit of a hub model"
    )
    dtype: DType = option(
        choice(DType), "auto", group=_MODEL, help="number format of weights and cache; auto is the checkpoint's"
    )
    device: str = option(
        text("auto, cpu, cuda or cuda:N", "DEVICE", check=lambda value: _DEVICE.fullmatch(value) is not None),
        "auto",
        group=_MODEL,
        help="auto, cpu, cuda or cuda:N",
    )
    quantization: Quantization = option(
        choice(Quantization),
        "none",
        group=_MODEL,
        help="on a CPU: int8 is fastest, int8-weight-only closest to the original",
        aliases=("-q",),
    )
    kv_cache_dtype: KvCacheDType = option(
        choice(KvCacheDType),
        "auto",
        group=_MODEL,
        help="on a CPU: int8 holds nearly twice the tokens; auto is int8 with --quantization int8, else the model's",
    )
    load_format: LoadFormat = option(choice(LoadFormat), "auto", group=_MODEL, help="dummy: random weights, for tests")
    max_model_len: int | None = option(
        size(),
        None,
        group=_MODEL,
        help="longest sequence, prompt and answer, in tokens",
        shown_default="the model's",
        aliases=("--context-length",),
    )
    max_logprobs: int = option(
        integer(0), 20, group=_MODEL, help="most alternatives a request may ask for at a position"
    )
    pooling: Pooling = option(
        choice(Pooling),
        "auto",
        group=_MODEL,
        help="embeddings: state of the last token, or mean of all; auto is the checkpoint's, else last",
    )
    block_size: int = option(
        integer(16, 16), 16, group=_CACHE, help="tokens per block; only 16 so far", aliases=("--page-size",)
    )
    num_kv_blocks: int | None = option(
        integer(1), None, group=_CACHE, help="blocks in the pool, whatever memory says", shown_default="from memory"
    )
    kv_cache_memory: int | None = option(
        size(),
        None,
        group=_CACHE,
        help="bytes for the pool, such as 2G",
        shown_default="from free memory",
        aliases=("--kv-cache-memory-bytes",),
    )
    gpu_memory_utilization: float = option(
        number(0.01, 1.0), 0.9, group=_CACHE, help="share of a GPU's memory for weights, steps and pool together"
    )
    enable_prefix_caching: bool = option(
        switch(),
        True,
        group=_CACHE,
        help="reuse the cache of equal prompt beginnings",
        off_aliases=("--disable-radix-cache",),
    )
    max_num_seqs: int | None = option(
        integer(1),
        None,
        group=_SCHEDULING,
        help="sequences that run at once",
        shown_default="64 on cpu, 256 on cuda",
        aliases=("--max-running-requests",),
    )
    max_num_batched_tokens: int | None = option(
        size(),
        None,
        group=_SCHEDULING,
        help="tokens computed in one step",
        shown_default="512 on cpu, 2048 on cuda",
        aliases=("--chunked-prefill-size",),
    )
    max_mixed_prefill_tokens: int | None = option(
        size(),
        None,
        group=_SCHEDULING,
        help="prompt tokens in a step that also decodes; fewer mean steadier streams",
        shown_default="128 on cpu, no limit on cuda",
    )
    scheduling_policy: SchedulingPolicy = option(
        choice(SchedulingPolicy),
        "priority",
        group=_SCHEDULING,
        help="lowest priority number first, then first come; or first come alone",
    )
    max_num_queued_reqs: int = option(
        integer(0),
        1024,
        group=_SCHEDULING,
        help="sequences that may wait; beyond it 429",
        aliases=("--max-queued-requests",),
    )
    max_num_queued_tokens: int | None = option(
        size(), None, group=_SCHEDULING, help="prompt tokens that may wait; beyond it 429"
    )
    threads: int | None = option(
        integer(1), None, group=_PROCESS, help="CPU threads", shown_default="physical cores", aliases=("-t",)
    )
    endpoint: str = computed_option(
        address(),
        default_address,
        group=_PROCESS,
        help="address to listen at",
        shown_default="a socket of this user alone",
        aliases=("--listen",),
    )
    insecure_tcp: bool = option(
        switch(), False, group=_PROCESS, help="allow a tcp address that other machines can reach"
    )
    warmup: bool = option(switch(), True, group=_PROCESS, help="run a step of each kind before the first request")
    shutdown_timeout: float = option(
        seconds(), 30.0, group=_PROCESS, help="on SIGTERM, how long running requests may finish"
    )
    log_level: LogLevel = option(choice(LogLevel), "info", group=_PROCESS, help="least severe message to log")
    log_format: LogFormat = option(choice(LogFormat), "text", group=_PROCESS, help="lines for people or JSON objects")

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for options that contradict each other."""
        check_exposure(self.endpoint, self.insecure_tcp)
        if self.num_kv_blocks is not None and self.kv_cache_memory is not None:
            raise ValueError("--num-kv-blocks and --kv-cache-memory: expected one of the two, got both")


def read_config(argv: Sequence[str] | None = None) -> EngineConfig:
    """Read flags, environment and config file; exits with status 2 and one line if something is wrong."""
    return read_options(
        EngineConfig,
        argv,
        prog="pagewire-engine",
        description="Load a model and generate tokens for the frontends that connect.",
        other_names=FRONTEND_OPTIONS,
    )
