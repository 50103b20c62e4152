import asyncio
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer

from pagewire.frontend import tokenizer as tokenizer_module
from pagewire.frontend.tokenizer import Tokenizer
from tests.toy_tokenizer import IM_END, IM_START, VOCAB_SIZE, tokenizer_json

TOY = Tokenizer(tokenizer_json())


def with_begin_token() -> Tokenizer:
    fast = FastTokenizer.from_str(tokenizer_json())
    fast.post_processor = processors.TemplateProcessing("<|im_start|> $A", None, [("<|im_start|>", IM_START)])
    return Tokenizer(fast.to_str())


def test_special_tokens_in_a_text_are_single_ids() -> None:
    assert TOY.encode("<|im_start|>é<|im_end|>", add_special_tokens=False) == [IM_START, 0xC3, 0xA9, IM_END]
    assert {IM_START, IM_END} <= TOY.special_ids
    assert TOY.vocab_size == VOCAB_SIZE
    assert TOY.token_id("<|im_end|>") == IM_END
    assert TOY.token(IM_END) == "<|im_end|>"
    assert TOY.token_id("<|other|>") is None is TOY.token(9999)


@given(st.text())
def test_decoding_returns_what_was_encoded(text: str) -> None:
    assert TOY.decode(TOY.encode(text, add_special_tokens=False)) == text


def test_special_tokens_can_be_left_out_of_the_text() -> None:
    ids = TOY.encode("a<|im_end|>", add_special_tokens=False)
    assert TOY.decode(ids) == "a<|im_end|>"
    assert TOY.decode(ids, skip_special_tokens=True) == "a"


def test_the_begin_token_is_added_only_when_asked_for() -> None:
    tokenizer = with_begin_token()
    assert tokenizer.encode("a", add_special_tokens=True) == [IM_START, ord("a")]
    assert tokenizer.encode("a", add_special_tokens=False) == [ord("a")]


def test_a_prompt_is_never_cut_or_padded() -> None:
    fast = FastTokenizer.from_str(tokenizer_json())
    fast.enable_truncation(2)
    fast.enable_padding(length=64)
    assert Tokenizer(fast.to_str()).encode("abcdef", add_special_tokens=False) == list(b"abcdef")


@pytest.mark.parametrize("text", ["", "{}", "not json", '{"model": {}}'])
def test_what_is_no_tokenizer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a tokenizer"):
        Tokenizer(text)


async def test_a_long_text_gives_the_same_ids_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    encode = Tokenizer.encode

    def spy(self: Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
        used.append(threading.current_thread() is threading.main_thread())
        return encode(self, text, add_special_tokens)

    monkeypatch.setattr(Tokenizer, "encode", spy)
    long = "é" * tokenizer_module.INLINE_CHARACTERS + "x"
    assert await TOY.encode_async("short", add_special_tokens=False) == list(b"short")
    assert await TOY.encode_async(long, add_special_tokens=False) == list(long.encode())
    assert used == [True, False]


async def test_the_event_loop_goes_on_while_a_long_text_is_encoded() -> None:
    encoding = asyncio.create_task(TOY.encode_async("word " * 100_000, add_special_tokens=False))
    turns = 0
    while not encoding.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    assert len(await encoding) == 500_000


def test_a_text_beyond_the_longest_token_times_the_limit_is_too_long_for_certain() -> None:
    longest = len("<|endoftext|>")
    assert TOY.certainly_exceeds("x" * (10 * longest + 1), 10)
    assert not TOY.certainly_exceeds("x" * (10 * longest), 10)
    assert not TOY.certainly_exceeds("<|endoftext|>" * 10, 10)


@given(st.text(st.sampled_from("ab é\n<|im_end|>"), max_size=200), st.integers(0, 20))
def test_certainty_is_never_wrong(text: str, limit: int) -> None:
    if TOY.certainly_exceeds(text, limit):
        assert len(TOY.encode(text, add_special_tokens=False)) > limit


def changed(**parts: object) -> str:
    config = json.loads(tokenizer_json())
    fast = FastTokenizer.from_str(json.dumps(config))
    for name, part in parts.items():
        setattr(fast, name, part)
    return fast.to_str()


@pytest.mark.parametrize(
    "config",
    [
        changed(normalizer=normalizers.Strip()),
        changed(normalizer=normalizers.Replace(Regex(" +"), " ")),
        changed(normalizer=normalizers.Replace("ab", "")),
        changed(pre_tokenizer=pre_tokenizers.WhitespaceSplit()),
        changed(pre_tokenizer=pre_tokenizers.Split(" ", "removed")),
        changed(model=models.WordLevel({"<unk>": 0}, unk_token="<unk>")),
    ],
)
def test_nothing_is_certain_where_a_token_can_swallow_any_amount_of_text(config: str) -> None:
    assert not Tokenizer(config).certainly_exceeds("x" * 100_000, 1)


def test_nothing_is_certain_with_added_tokens_that_strip_spaces() -> None:
    fast = FastTokenizer.from_str(tokenizer_json())
    fast.add_special_tokens([AddedToken("<sep>", lstrip=True)])
    tokenizer = Tokenizer(fast.to_str())
    assert len(tokenizer.encode(" " * 1000 + "<sep>", add_special_tokens=False)) == 1
    assert not tokenizer.certainly_exceeds(" " * 1000 + "<sep>", 1)


def test_composition_is_counted_in() -> None:
    tokenizer = Tokenizer(changed(normalizer=normalizers.NFC()))
    text = "e\u0301" * 100
    assert len(tokenizer.encode(text, add_special_tokens=False)) == 200
    assert not tokenizer.certainly_exceeds("x" * 52, 1)
    assert tokenizer.certainly_exceeds("x" * 53, 1)
