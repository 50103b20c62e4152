"""Filling in the middle: the prompt is put together from the model's own tokens, or refused."""

import pytest
import tokenizers

from pagewire.frontend.openai.errors import ApiError
from pagewire.frontend.openai.infill import MARKERS, infill
from pagewire.frontend.tokenizer import Tokenizer
from tests.toy_tokenizer import tokenizer_json


@pytest.mark.parametrize("markers", MARKERS)
def test_the_middle_comes_after_prefix_and_suffix(markers: tuple[str, str, str]) -> None:
    raw = tokenizers.Tokenizer.from_str(tokenizer_json())
    raw.add_special_tokens(list(markers))
    before, after, middle = (raw.token_to_id(marker) for marker in markers)
    prompt = infill(tuple(b"ab"), tuple(b"cd"), Tokenizer(raw.to_str()))
    assert prompt == (before, *b"ab", after, *b"cd", middle)


def test_a_model_without_the_tokens_refuses() -> None:
    with pytest.raises(ApiError) as caught:
        infill(tuple(b"ab"), tuple(b"cd"), Tokenizer(tokenizer_json()))
    assert (caught.value.status, caught.value.param) == (400, "suffix")
