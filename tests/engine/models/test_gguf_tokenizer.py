"""The tokenizer in a GGUF file becomes the tokenizer.json of the original model."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from pagewire.engine.models.errors import ModelError
from pagewire.engine.models.files import resolve_model
from pagewire.engine.models.gguf import GgufFile
from pagewire.engine.models.gguf_tokenizer import gguf_tokenizer_json
from tests.engine.models import gguf_file


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def make_tokenizer(**changes: Any) -> Tokenizer:
        metadata = gguf_file.TOKENIZER | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
        file = GgufFile(gguf_file.write_metadata(tmp_path / "model.gguf", metadata))
        return Tokenizer.from_str(gguf_tokenizer_json(file))

    return make_tokenizer


def test_merges_apply_and_ids_are_those_of_the_file(make: Any) -> None:
    assert make().encode("ab a\n").ids == [gguf_file.TOKENS.index(token) for token in ("ab", "Ġa", "Ċ")]


def test_bytes_of_a_character_are_joined_again(make: Any) -> None:
    tokenizer = make()

    assert tokenizer.encode("é").tokens == ["Ã", "©"]
    assert tokenizer.decode(tokenizer.encode("é").ids) == "é"


def test_control_and_user_defined_tokens_stay_whole_but_only_control_tokens_are_special(make: Any) -> None:
    tokenizer = make()
    ids = tokenizer.encode("a<s><tool>b").ids

    assert ids == [3, 0, 2, 4]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a<tool>b"


def test_nothing_is_added_unless_the_file_says_so(make: Any) -> None:
    assert make().encode("a").ids == [3]
    assert make(add_bos_token=True).encode("a").ids == [0, 3]
    assert make(add_bos_token=True, add_eos_token=True).encode("a").ids == [0, 3, 1]


def test_a_llama_3_vocabulary_begins_with_the_begin_token_by_default(make: Any) -> None:
    assert make(pre="llama-bpe").encode("a").ids == [0, 3]
    assert make(pre="llama-bpe", add_bos_token=False).encode("a").ids == [3]


def test_digits_are_split_as_the_pre_tokenizer_says(make: Any) -> None:
    assert make(pre="gpt-2").encode("12").tokens == ["12"]
    assert make(pre="qwen2").encode("12").tokens == ["1", "2"]
    assert make(pre="llama-bpe").encode("12").tokens == ["<s>", "12"]


def test_smollm_cuts_digits_out_before_spaces_are_divided(make: Any) -> None:
    assert make(pre="smollm").encode("  1").tokens == ["ĠĠ", "1"]
    assert make(pre="gpt-2").encode("  1").tokens == ["Ġ", "Ġ1"]


def test_qwen2_composes_characters_first(make: Any) -> None:
    assert make(pre="qwen2").encode("e\u0301").tokens == ["Ã", "©"]


def test_a_vocabulary_of_another_kind_is_converted_by_transformers(make: Any) -> None:
    assert make(pre="tekken").encode("ab<tool>").ids == [9, 2]


def test_a_file_without_tokenizer_is_refused(tmp_path: Path) -> None:
    file = GgufFile(gguf_file.write_metadata(tmp_path / "model.gguf", {}))

    with pytest.raises(ModelError, match=r"tokenizer\.ggml\.model is missing"):
        gguf_tokenizer_json(file)


TEXTS = (
    "",
    " leading, trailing and  double  spaces ",
    "<|im_start|>user\nHow many 12345s are in 3.14159?<|im_end|>\n<|im_start|>assistant\n",
    "def f(x):\n\tif x >= 10:\n\t\treturn {'a': [x, 2]}\n\n\nprint(f(3))",
    "Don't, won't, I'LL, we've. naïve café e\u0301 \u200b",
    "日本語のテキスト 中文 한국어 العربية हिन्दी",
    "👩‍👩‍👧 🙂🙂 <file_sep>x<|endoftext|>",
)


def test_the_demo_tokenizer_agrees_with_transformers() -> None:
    """Except where a number follows white space: there transformers loses the digit splitting of SmolLM."""
    try:
        files = resolve_model("demo")
    except ModelError:
        pytest.skip("the demo model is not installed")
    from transformers import AutoTokenizer

    assert files.gguf is not None
    reference = AutoTokenizer.from_pretrained(str(files.directory), gguf_file=files.gguf.name)
    serialized = gguf_tokenizer_json(GgufFile(files.gguf))
    tokenizer = Tokenizer.from_str(serialized)

    assert [tokenizer.encode(text).ids for text in TEXTS] == [reference(text).input_ids for text in TEXTS]
    assert [tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) for text in TEXTS] == list(TEXTS)
    assert len(json.loads(serialized)["added_tokens"]) == 17
