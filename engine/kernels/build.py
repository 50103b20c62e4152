"""Compile the native library: once for each instruction set, at install or at first use.

This file imports nothing of the project, so that ``setup.py`` can run it by path before anything is installed.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "native"
MAIN = SOURCES / "native.cpp"
COMMON_FLAGS = (
    "-std=c++20",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-Wno-psabi",
    "-pthread",
)
# x86-64-v4 is AVX512 F, BW, CD, DQ and VL. GCC would use only half of a 512-bit register unless told.
AVX512_FLAGS = ("-march=x86-64-v4", "-mprefer-vector-width=512")
ISA_FLAGS: dict[str, tuple[str, ...]] = {
    "avx512bf16": (*AVX512_FLAGS, "-mavx512bf16", "-mavx512vnni"),
    "avx512": AVX512_FLAGS,
    "avx2": ("-march=x86-64-v3",),
    "portable": (),
}
# The extensions that each set's code uses, in the words of /proc/cpuinfo; fastest first.
AVX2_NEEDS = frozenset({"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"})
AVX512_NEEDS = AVX2_NEEDS | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
ISA_NEEDS: dict[str, frozenset[str]] = {
    "avx512bf16": AVX512_NEEDS | {"avx512_bf16", "avx512_vnni"},
    "avx512": AVX512_NEEDS,
    "avx2": AVX2_NEEDS,
    "portable": frozenset(),
}
COMPILE_TIMEOUT_S = 300


class BuildError(Exception):
    """The library could not be compiled; the message is the compiler's, or says that there is none."""


def isas(machine: str) -> tuple[str, ...]:
    """The instruction sets to build for on ``machine`` (as ``platform.machine()`` says it)."""
    return tuple(ISA_FLAGS) if machine in ("x86_64", "AMD64") else ("portable",)


def library_name(isa: str) -> str:
    """File name of the library for one instruction set, built from the sources as they are now."""
    return f"_native_{isa}_{_source_hash()}.so"


def _source_hash() -> str:
    """Changes when the sources or the flags do, so that an old build is never taken for a new one."""
    digest = hashlib.blake2b(repr((COMMON_FLAGS, ISA_FLAGS)).encode(), digest_size=8)
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def compile_library(isa: str, target: Path) -> None:
    """Compile for ``isa`` into ``target``, which appears whole or not at all. Raises ``BuildError``."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        raise BuildError("no C++ compiler found (looked for $CXX, g++, c++, clang++)")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        output = Path(directory) / target.name
        command = [compiler, *COMMON_FLAGS, *ISA_FLAGS[isa], str(MAIN), "-o", str(output)]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"{compiler} did not run: {error}") from error
        if result.returncode != 0:
            raise BuildError(f"{compiler} failed for {isa}: {result.stderr.strip()[:2000]}")
        output.replace(target)
