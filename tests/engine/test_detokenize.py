from collections.abc import Callable, Iterable
from functools import cache
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pagewire.engine.detokenize import OutputText, text_decoder, token_offsets
from pagewire.engine.vocabulary import Vocabulary
from pagewire.protocol.messages import Sampling
from tests.engine import small_tokenizers as make

EXACT = [make.byte_level, make.metaspace, make.word_pieces]
WITH_BYTE_RUNS = [make.byte_fallback, make.byte_fallback_from_gguf, make.byte_fallback_without_strip]

each_example = settings(max_examples=300, deadline=None, derandomize=True)


@cache
def vocabulary(maker: Callable[[], Tokenizer]) -> Vocabulary:
    return Vocabulary(maker().to_str(), vocab_size=400)


def stream(text: OutputText, token_ids: Iterable[int]) -> str:
    pieces = [text.push(token_id) for token_id in token_ids]
    return "".join([*pieces, text.flush()])


def decoded(words: Vocabulary, token_ids: list[int], skip: bool = True) -> str:
    return stream(OutputText(words, Sampling(99, skip_special_tokens=skip)), token_ids)


def ids_of(words: Vocabulary, *tokens: str) -> list[int]:
    return [words.tokenizer.token_to_id(token) for token in tokens]


@pytest.mark.parametrize("maker", EXACT)
@given(data=st.data(), skip=st.booleans())
@each_example
def test_any_ids_stream_as_the_tokenizer_decodes_them(
    maker: Callable[[], Tokenizer], data: st.DataObject, skip: bool
) -> None:
    words = vocabulary(maker)
    token_ids = data.draw(st.lists(st.integers(0, words.size - 1), max_size=40))
    assert decoded(words, token_ids, skip) == words.decode(token_ids, skip)


@pytest.mark.parametrize("maker", [make.byte_level, *WITH_BYTE_RUNS])
@given(text=st.text() | st.text("a b▁日é\n😀", max_size=30), skip=st.booleans())
@each_example
def test_any_text_streams_as_the_tokenizer_decodes_it(maker: Callable[[], Tokenizer], text: str, skip: bool) -> None:
    words = vocabulary(maker)
    token_ids = words.tokenizer.encode(text).ids
    assert decoded(words, token_ids, skip) == words.decode(token_ids, skip)


@pytest.mark.parametrize("maker", [make.byte_level, *WITH_BYTE_RUNS])
def test_a_special_token_may_be_shown_while_others_are_skipped(maker: Callable[[], Tokenizer]) -> None:
    words = vocabulary(maker)
    special = sorted(words.special)
    text = OutputText(words, Sampling(99, shown_token_ids=(special[0],)))
    assert stream(text, special).strip() == words.token_text(special[0])


def valid_runs_or_hopeless_ones(words: Vocabulary) -> st.SearchStrategy[list[int]]:
    """Text tokens and byte runs that are valid UTF-8 or contain no character before their first bad byte."""
    start = words.tokenizer.token_to_id("<0x00>")
    bad = st.sampled_from([b"\xf0\x9f", b"\xff", b"\x80A", b"\xe2\x82", b"\xe2A\x82\xac"])
    run = (st.text("😀é日\n", min_size=1, max_size=4).map(str.encode) | bad).map(lambda data: [start + b for b in data])
    one_text = st.sampled_from([[i] for i in range(start + 256, words.size)])
    return st.lists(
        st.tuples(run, one_text).map(lambda pair: pair[0] + pair[1]) | one_text | one_text, max_size=12
    ).map(lambda parts: [token_id for part in parts for token_id in part])


@pytest.mark.parametrize("maker", WITH_BYTE_RUNS)
@given(data=st.data(), skip=st.booleans(), cut=st.integers(0, 3))
@each_example
def test_byte_runs_stream_as_the_tokenizer_decodes_them(
    maker: Callable[[], Tokenizer], data: st.DataObject, skip: bool, cut: int
) -> None:
    words = vocabulary(maker)
    token_ids = data.draw(valid_runs_or_hopeless_ones(words))
    hidden = words.special | words.absent if skip else words.absent
    runs_touch = any(words.texts[i] is None for i in token_ids) and any(i in hidden for i in token_ids)
    if not runs_touch:  # a hidden token joins two runs, which may make a valid one invalid
        assert decoded(words, token_ids, skip) == words.decode(token_ids, skip)


def test_a_bad_byte_spoils_the_rest_of_its_run_but_not_what_was_sent() -> None:
    words = vocabulary(make.byte_fallback)
    token_ids = ids_of(words, "a", *(f"<0x{byte:02X}>" for byte in b"\n\xf0\x9fA\n"), "b", "<0x0A>")
    text = OutputText(words, Sampling(99))
    assert [text.push(token_id) for token_id in token_ids] == ["a", "\n", "", "", "\ufffd" * 3, "\ufffd", "b", "\n"]


@pytest.mark.parametrize("maker", [make.byte_level, *WITH_BYTE_RUNS])
def test_a_character_arrives_whole_with_its_last_byte(maker: Callable[[], Tokenizer]) -> None:
    words = vocabulary(maker)
    bytes_of_smile = [next(i for i in range(words.size) if words.token_bytes(i) == bytes([b])) for b in "😀".encode()]
    text = OutputText(words, Sampling(99))
    assert [text.push(token_id) for token_id in bytes_of_smile] == ["", "", "", "😀"]
    assert text.flush() == ""


def test_an_unfinished_character_becomes_a_replacement_only_at_the_end() -> None:
    words = vocabulary(make.byte_level)
    (half,) = ids_of(words, "ðŁ")
    text = OutputText(words, Sampling(99))
    assert [text.push(half) for _ in range(3)] == ["", "\ufffd", "\ufffd"]
    assert text.flush() == "\ufffd"


def test_special_tokens_are_hidden_or_shown_as_asked() -> None:
    words = vocabulary(make.byte_level)
    token_ids = ids_of(words, "ðŁ", "<|end|>", "ĺ", "Ģ", "<｜turn｜>", "<think>")
    assert decoded(words, token_ids, skip=True) == "😀<think>"
    assert decoded(words, token_ids, skip=False) == "\ufffd<|end|>\ufffd\ufffd<｜turn｜><think>"


def test_only_the_very_start_of_a_text_loses_its_space() -> None:
    words = vocabulary(make.byte_fallback)
    token_ids = ids_of(words, "<s>", "▁Hello", "▁a", "▁", "▁a")
    assert decoded(words, token_ids) == "Hello a  a"
    assert stream(OutputText(words, Sampling(99), continues=True), token_ids) == " Hello a  a"


def test_a_decoder_of_unknown_kind_does_not_wait_forever_for_a_character() -> None:
    words = vocabulary(make.word_pieces)
    decoder = text_decoder(words, skip_special_tokens=True)
    assert decoder.push(1) == "hello"
    assert decoder.push(2) == "ing"
    assert decoder.push(4) == " world"


def test_a_decoder_of_unknown_kind_decodes_no_token_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    words = vocabulary(make.metaspace)
    lengths: list[int] = []
    decode = words.tokenizer.decode
    counting = SimpleNamespace(decode=lambda ids, **fields: lengths.append(len(ids)) or decode(ids, **fields))
    monkeypatch.setattr(words, "tokenizer", counting)
    token_offsets(words, [*range(5), *[words.size - 1] * 100, 1], skip_special_tokens=False)
    assert max(lengths) < 10


def test_offsets_are_where_each_tokens_text_begins() -> None:
    words = vocabulary(make.byte_level)
    token_ids = ids_of(words, "ing", "Ġh", "ðŁ", "ĺ", "Ģ", "x")
    text, offsets = OutputText(words, Sampling(99, stop=("never",))), []
    for token_id in token_ids:
        offsets.append(text.offset)
        text.push(token_id)
    assert offsets == [0, 3, 5, 5, 5, 6]
    assert token_offsets(words, token_ids, skip_special_tokens=True) == offsets


class TestStopStrings:
    def output(self, *tokens: str, **sampling: object) -> tuple[list[str], OutputText]:
        words = vocabulary(make.byte_level)
        text = OutputText(words, Sampling(99, **sampling))  # type: ignore[arg-type]
        return [text.push(token_id) for token_id in ids_of(words, *tokens)], text

    def test_a_match_across_tokens_cuts_the_text_before_it(self) -> None:
        pieces, text = self.output("ing", "ing", stop=("gi",))
        assert (pieces, text.flush(), text.matched) == (["in", ""], "", "gi")

    def test_the_stop_string_stays_if_asked_for(self) -> None:
        pieces, text = self.output("ing", "ing", stop=("gi",), include_stop=True)
        assert (pieces, text.matched) == (["in", "gi"], "gi")

    def test_held_text_comes_with_the_end(self) -> None:
        pieces, text = self.output("x", "x", "ing", stop=("ingot",))
        assert (pieces, text.flush(), text.matched) == (["x", "x", ""], "ing", None)

    def test_a_stop_string_of_multi_byte_characters_is_found(self) -> None:
        pieces, text = self.output("å¤", "©", "å¤", "©", stop=("天天",))
        assert (pieces, text.matched) == (["", "", "", ""], "天天")

    def test_text_of_the_first_min_tokens_is_never_part_of_a_match(self) -> None:
        pieces, text = self.output("x", "x", "x", "x", stop=("xx",), min_tokens=3)
        assert (pieces, text.matched) == (["x", "x", "x", ""], None)
        assert text.push(vocabulary(make.byte_level).tokenizer.token_to_id("x")) == ""
        assert text.matched == "xx"

    def test_a_character_that_is_never_finished_can_still_end_the_text(self) -> None:
        pieces, text = self.output("x", "ðŁ", stop=("\ufffd",))
        assert (pieces, text.flush(), text.matched) == (["x", ""], "", "\ufffd")
