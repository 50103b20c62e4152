"""The native library through ctypes: finding or building it, and its C structures and functions."""

import ctypes
import functools
import logging
import os
from ctypes import POINTER, c_float, c_int32, c_int64, c_uint16, c_void_p
from pathlib import Path
from typing import ClassVar

from pagewire.engine.kernels.build import ISA_NEEDS, BuildError, compile_library, library_name

logger = logging.getLogger(__name__)


class Config(ctypes.Structure):
    """The shape of a model; mirrors ``Config`` of native/model.h, where the fields are explained."""

    _fields_: ClassVar = [
        *(
            (name, c_int32)
            for name in ("hidden", "inner", "layers", "heads", "kv_heads", "head_dim", "vocab", "threads")
        ),
        ("format", c_int32),
        ("kv_format", c_int32),
        ("norm_eps", c_float),
        ("rope_scale", c_float),
        ("inverse_frequencies", POINTER(c_float)),
        ("windows", POINTER(c_int32)),
        ("embeddings", POINTER(c_uint16)),
    ]


class Batch(ctypes.Structure):
    """One step's arrays; mirrors ``Batch`` of native/model.h."""

    _fields_: ClassVar = [
        *((name, c_int32) for name in ("tokens", "rows", "logit_rows", "hidden_rows", "max_blocks")),
        *((name, c_void_p) for name in ("token_ids", "positions", "slot_mapping", "block_tables")),
        *((name, c_void_p) for name in ("seq_lens", "query_starts", "logit_indices", "hidden_indices")),
        *((name, c_void_p) for name in ("logits", "hidden")),
    ]


# The numbers of native.cpp's enumerations.
FORMATS = {None: 0, "int8": 1, "int8-weight-only": 2}
KV_FORMATS = {"bfloat16": 0, "int8": 1}
PROJECTIONS = {"qkv": 0, "output": 1, "gate_up": 2, "down": 3, "head": 4}
NORMS = {"attention": 0, "mlp": 1, "query": 2, "key": 3, "final": 4}


def load_library(isa: str | None = None) -> tuple[ctypes.CDLL, str]:
    """The library for ``isa`` (by default the best that this processor has), and the set's name.

    Raises ``BuildError`` where it is neither installed nor can be compiled.
    """
    isa = isa or best_isa(processor_flags())
    return _load(isa), isa


def processor_flags() -> frozenset[str]:
    """What the processor can do, in the words of Linux; nothing where there is no /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")
    return frozenset(flags.split())


def best_isa(flags: frozenset[str]) -> str:
    """The fastest instruction set whose every extension is among the processor's ``flags``."""
    return next(isa for isa, needed in ISA_NEEDS.items() if needed <= flags)


@functools.cache
def _load(isa: str) -> ctypes.CDLL:
    library = ctypes.CDLL(str(_find(isa)))
    library.pw_create.restype = c_void_p
    library.pw_create.argtypes = [POINTER(Config)]
    library.pw_destroy.restype = None
    library.pw_destroy.argtypes = [c_void_p]
    library.pw_set_projection.argtypes = [c_void_p, *[c_int32] * 3, c_void_p, c_void_p, c_int32, c_int32]
    library.pw_set_norm.restype = None
    library.pw_set_norm.argtypes = [c_void_p, c_int32, c_int32, c_void_p, c_int32]
    library.pw_allocate_kv.argtypes = [c_void_p, c_int64]
    library.pw_prepare_kv.argtypes = [c_void_p, c_int64]
    library.pw_forward.argtypes = [c_void_p, POINTER(Batch)]
    return library


def _find(isa: str) -> Path:
    """Installed beside this file, or compiled into the user's cache now or earlier."""
    installed = Path(__file__).parent / library_name(isa)
    if installed.is_file():
        return installed
    cached = _cache_directory() / installed.name
    if not cached.is_file():
        logger.info("compiling native kernels for %s into %s", isa, cached.parent)
        try:
            compile_library(isa, cached)
        except OSError as error:
            raise BuildError(f"cannot write {cached}: {error}") from error
    return cached


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pagewire" / "native"
