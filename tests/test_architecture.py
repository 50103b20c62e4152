"""What may import what. The two programs share the protocol and nothing else; only the command line knows both."""

import ast
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagewire.engine.config import EngineConfig
from pagewire.frontend.config import FrontendConfig

ROOT = Path(__file__).parent.parent
DIRECTORIES = ("engine", "frontend", "protocol", "pagewire", "bench")
HEAVY = {"torch", "transformers", "accelerate", "safetensors", "gguf"}


def sources(directory: str) -> list[Path]:
    return sorted((ROOT / directory).rglob("*.py"))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports_of(path: Path) -> Iterator[str]:
    """Full names of all that a module imports, wherever in it."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide what is imported"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_parts(directory: str) -> set[str]:
    """The parts of pagewire that a directory's modules import: engine, frontend, ..."""
    names = [name for path in sources(directory) for name in imports_of(path)]
    return {name.split(".")[1] for name in names if name.startswith("pagewire.")}


@pytest.mark.parametrize(
    ("directory", "allowed"),
    [("protocol", {"protocol"}), ("engine", {"engine", "protocol"}), ("frontend", {"frontend", "protocol"})],
)
def test_each_part_imports_only_what_it_may(directory, allowed):
    assert imported_parts(directory) <= allowed


@pytest.mark.parametrize("directory", ["frontend", "protocol"])
def test_frontend_and_protocol_import_no_heavy_library(directory):
    for path in sources(directory):
        assert not {name.split(".")[0] for name in imports_of(path)} & HEAVY, path


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_nothing_imports_pickle(directory):
    for path in sources(directory):
        assert not {name.split(".")[0] for name in imports_of(path)} & {"pickle", "cPickle", "dill", "shelve"}, path


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_nothing_loads_a_file_that_torch_would_unpickle(directory):
    for path in sources(directory):
        assert "torch.load(" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("module", ["pagewire.frontend.main", "pagewire.bench.cli", "pagewire.serve"])
def test_what_needs_no_model_starts_without_loading_torch(module):
    code = f"import sys\nimport {module}\nprint({HEAVY!r} & set(sys.modules))\n"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (result.stdout, result.stderr) == ("set()\n", "")


@pytest.mark.parametrize(("directory", "config"), [("engine", EngineConfig), ("frontend", FrontendConfig)])
def test_every_option_has_an_effect(directory, config):
    """Each field of the configuration is read somewhere in the program beside its declaration."""
    read = {
        node.attr
        for path in sources(directory)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("config")
    }
    # The declarations themselves check these: block_size and quantization have one possible value so far.
    checked_at_start = {"block_size", "quantization", "insecure_tcp"}
    assert {field.name for field in dataclasses.fields(config)} - read <= checked_at_start
