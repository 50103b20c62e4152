"""What frontends are told comes from the files of the model, newest form first."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models

from pagewire.engine.models.config import parse_config
from pagewire.engine.models.describe import describe_model
from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.files import resolve_model
from pagewire.engine.models.loader import load_config
from pagewire.protocol.messages import Model
from tests.engine.models import gguf_file, tiny

CONFIG = parse_config(tiny.CONFIGS["qwen2"].to_dict())


class Directory:
    """A model directory to put files in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "hello": 1}, unk_token="<unk>"))
        tokenizer.add_special_tokens(["<|end|>"])
        tokenizer.save(str(path / "tokenizer.json"))
        self.put("config.json", {"eos_token_id": 5})

    def put(self, name: str, values: Any) -> None:
        (self.path / name).parent.mkdir(exist_ok=True)
        (self.path / name).write_text(values if isinstance(values, str) else json.dumps(values))

    def describe(self) -> Model:
        return describe_model(resolve_model(str(self.path)), CONFIG, torch.bfloat16, created=1)


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def test_the_tokenizer_is_passed_on_as_it_is(directory: Directory) -> None:
    model = directory.describe()

    assert model.tokenizer_json == (directory.path / "tokenizer.json").read_text()
    assert (model.name, model.vocab_size, model.dtype) == (directory.path.name, 96, "bfloat16")


def test_end_tokens_come_from_every_place_once(directory: Directory) -> None:
    directory.put("generation_config.json", {"eos_token_id": [7, 5]})
    directory.put("tokenizer_config.json", {"eos_token": "<|end|>"})

    assert directory.describe().eos_token_ids == (5, 7, 2)


def test_templates_of_the_tokenizer_config_may_have_names(directory: Directory) -> None:
    templates = [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]
    directory.put("tokenizer_config.json", {"chat_template": templates})

    assert directory.describe().chat_templates == {"default": "A", "tool_use": "B"}


def test_template_files_win_over_the_tokenizer_config(directory: Directory) -> None:
    directory.put("tokenizer_config.json", {"chat_template": "old"})
    directory.put("chat_template.jinja", "new")
    directory.put("additional_chat_templates/rag.jinja", "rag")

    assert directory.describe().chat_templates == {"default": "new", "rag": "rag"}


def test_a_model_without_template_has_none(directory: Directory) -> None:
    assert directory.describe().chat_templates == {}


def test_special_tokens_are_text_in_every_form_they_are_written_in(directory: Directory) -> None:
    directory.put("special_tokens_map.json", {"pad_token": "<pad>", "bos_token": "<old>"})
    directory.put(
        "tokenizer_config.json",
        {
            "bos_token": {"content": "<s>", "lstrip": False},
            "unk_token": None,
            "add_bos_token": True,
            "extra_special_tokens": {"image_token": "<img>"},
        },
    )

    assert directory.describe().special_tokens == {"pad_token": "<pad>", "bos_token": "<s>", "image_token": "<img>"}


def test_generation_defaults_are_the_sampling_values_that_are_set(directory: Directory) -> None:
    directory.put(
        "generation_config.json",
        {"temperature": 0.6, "top_k": 20, "top_p": None, "max_length": 20, "do_sample": True, "pad_token_id": 0},
    )

    assert directory.describe().generation_defaults == {"temperature": 0.6, "top_k": 20}


def test_generation_defaults_that_are_no_numbers_are_left_out_with_a_warning(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    values = {"temperature": True, "top_p": "x", "top_k": 10**30, "min_p": math.nan, "repetition_penalty": -1}
    directory.put("generation_config.json", values)

    assert directory.describe().generation_defaults == {"repetition_penalty": -1}
    assert [record.args[0] for record in caplog.records if record.args] == ["temperature", "top_p", "top_k", "min_p"]


def test_neither_loading_nor_describing_a_gguf_file_waits_for_the_import_of_transformers(tmp_path: Path) -> None:
    path = gguf_file.write_model(tmp_path / "tiny.gguf", tiny.make_reference(tiny.CONFIGS["qwen2"]))
    program = f"""
import sys, torch
from pagewire.engine.models.describe import describe_model
from pagewire.engine.models.files import resolve_model
from pagewire.engine.models.loader import load_config, load_model
files = resolve_model({str(path)!r})
load_model(files, "auto", torch.device("cpu"))
describe_model(files, load_config(files), torch.bfloat16, created=1)
sys.exit("transformers" in sys.modules)
"""

    assert subprocess.run([sys.executable, "-c", program], timeout=100).returncode == 0


def test_a_directory_without_any_tokenizer_is_refused(directory: Directory) -> None:
    (directory.path / "tokenizer.json").unlink()

    with pytest.raises(ModelError, match=r"has no tokenizer\.json, and none can be made"):
        directory.describe()


def test_a_gguf_file_tells_its_own_templates_and_tokens(tmp_path: Path) -> None:
    extra = gguf_file.TOKENIZER | {"tokenizer.ggml.eot_token_id": 2}
    path = gguf_file.write_model(tmp_path / "tiny.gguf", tiny.make_reference(tiny.CONFIGS["qwen2"]), extra)
    files = resolve_model(str(path))

    model = describe_model(files, load_config(files), torch.float32, created=1, name="served")

    assert (model.name, model.path, model.dtype) == ("served", str(path), "float32")
    assert model.chat_templates == {"default": "{{ messages }}", "tool_use": "{{ tools }}"}
    assert model.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert model.eos_token_ids == (1, 2)
    assert Tokenizer.from_str(model.tokenizer_json).encode("ab").ids == [9]
