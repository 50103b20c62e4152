"""Compile the native kernels along with the installation, where that is possible; everything else is in pyproject.toml.

Without a compiler the installation still succeeds: the engine then tries once more at its start, and runs in torch.
"""

import os
import platform
import runpy
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

BUILD = runpy.run_path(str(Path(__file__).parent / "engine" / "kernels" / "build.py"))
# Set to leave the kernels to the engine's first start, which compiles them for one processor only.
SKIP = "PAGEWIRE_SKIP_NATIVE_BUILD"


class BuildNative(build_ext):
    """Builds plain shared libraries, loaded with ctypes, instead of Python extension modules."""

    def get_ext_filename(self, fullname: str) -> str:
        """Path of a library below the build directory."""
        *packages, isa = fullname.split(".")
        return str(Path(*packages) / BUILD["library_name"](isa))

    def build_extension(self, ext: Extension) -> None:
        """Compile for one instruction set; a failure is a warning, since the extension is optional."""
        isa = ext.name.rpartition(".")[2]
        try:
            BUILD["compile_library"](isa, Path(self.get_ext_fullpath(ext.name)))
        except BUILD["BuildError"] as error:
            raise CompileError(str(error)) from error


def native_extensions() -> list[Extension]:
    """One for each instruction set; none where they are not wanted."""
    if os.environ.get(SKIP):
        return []
    return [
        Extension(f"pagewire.engine.kernels.{isa}", [str(BUILD["MAIN"].relative_to(Path.cwd()))], optional=True)
        for isa in BUILD["isas"](platform.machine())
    ]


setup(ext_modules=native_extensions(), cmdclass={"build_ext": BuildNative})
