from collections.abc import Callable

import pytest
from tokenizers import Tokenizer, decoders

from pagewire.engine.vocabulary import Vocabulary
from tests.engine import small_tokenizers as make


def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary(tokenizer.to_str())


def test_byte_level_tokens_have_their_true_bytes() -> None:
    tokenizer = make.byte_level()
    words = vocabulary(tokenizer)
    expected = {
        "Ġh": b" h",
        "ðŁ": b"\xf0\x9f",
        "ĺĢ": b"\x98\x80",
        "<|end|>": b"<|end|>",
        "<｜turn｜>": "<｜turn｜>".encode(),
    }
    assert {token: words.token_bytes(tokenizer.token_to_id(token)) for token in expected} == expected


def test_pieces_have_their_true_bytes() -> None:
    tokenizer = make.byte_fallback()
    words = vocabulary(tokenizer)
    expected = {"▁Hello": b" Hello", "<0x0A>": b"\n", "<0xF0>": b"\xf0", "日": "日".encode(), "</s>": b"</s>"}
    assert {token: words.token_bytes(tokenizer.token_to_id(token)) for token in expected} == expected


def test_readable_text_shows_bytes_without_a_character_as_replacement() -> None:
    tokenizer = make.byte_level()
    words = vocabulary(tokenizer)
    expected = {"Ġh": " h", "ðŁ": "\ufffd", "nÃ": "n\ufffd", "<|end|>": "<|end|>"}
    assert {token: words.token_text(tokenizer.token_to_id(token)) for token in expected} == expected


def test_special_tokens_are_those_the_tokenizer_marks() -> None:
    tokenizer = make.byte_level()
    words = vocabulary(tokenizer)
    assert {tokenizer.id_to_token(token_id) for token_id in words.special} == {"<|end|>", "<｜turn｜>"}


def test_ids_beyond_the_tokenizer_decode_to_nothing() -> None:
    tokenizer = make.byte_level()
    words = Vocabulary(tokenizer.to_str(), vocab_size=1000)
    assert words.size == 1000
    assert (words.token_bytes(999), words.token_text(999)) == (b"", "")
    assert 999 in words.absent - words.special


@pytest.mark.parametrize(
    ("maker", "kind"),
    [
        (make.byte_level, "bytes"),
        (make.byte_fallback, "pieces"),
        (make.byte_fallback_from_gguf, "pieces"),
        (make.byte_fallback_without_strip, "pieces"),
        (make.metaspace, "opaque"),
        (make.word_pieces, "opaque"),
    ],
)
def test_the_decoder_is_recognized_by_its_steps(maker: Callable[[], Tokenizer], kind: str) -> None:
    assert vocabulary(maker()).scheme.kind == kind


def test_a_strip_of_every_token_is_left_to_the_tokenizer() -> None:
    tokenizer = make.byte_fallback()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Strip(" ", 1, 0)])
    assert vocabulary(tokenizer).scheme.kind == "opaque"


def test_tokens_of_an_opaque_tokenizer_have_the_bytes_of_their_own_decoding() -> None:
    words = vocabulary(make.word_pieces())
    assert words.token_bytes(1) == b"hello"
