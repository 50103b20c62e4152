"""Log-probabilities in the three shapes, with values that JSON can hold."""

from pagewire.frontend.openai.logprobs import LegacyLogprobs, chat_logprobs, prompt_logprobs
from pagewire.protocol.messages import Logprob, TopLogprob

IMPOSSIBLE = Logprob(5, float("-inf"), "a", b"a", 3, 7, (TopLogprob(6, float("-inf"), "b", b"b"),))
HALF_CHARACTER = Logprob(7, -1.0, "\ufffd", b"\xf0\x9f", 1, 0)


def test_impossible_is_a_number_in_every_shape() -> None:
    chat = chat_logprobs([IMPOSSIBLE], 1)
    assert chat
    assert (chat["content"][0]["logprob"], chat["content"][0]["top_logprobs"][0]["logprob"]) == (-9999.0, -9999.0)
    legacy = LegacyLogprobs(1)
    legacy.extend([IMPOSSIBLE], 0)
    assert (legacy.as_json() or {})["top_logprobs"] == [{"b": -9999.0, "a": -9999.0}]
    assert prompt_logprobs([None, IMPOSSIBLE], 0) == [
        None,
        {"5": {"logprob": -9999.0, "rank": 3, "decoded_token": "a"}},
    ]


def test_half_a_character_keeps_its_true_bytes() -> None:
    chat = chat_logprobs([HALF_CHARACTER], 0)
    assert chat
    assert chat["content"][0]["bytes"] == [0xF0, 0x9F]


def test_no_tokens_are_null_not_an_empty_list() -> None:
    assert chat_logprobs([], 5) is None
    assert LegacyLogprobs(5).as_json() is None


def test_the_chosen_token_wins_over_another_with_the_same_text() -> None:
    twin = Logprob(1, -2.0, "x", b"x", 2, 0, (TopLogprob(9, -0.1, "x", b"x"), TopLogprob(1, -2.0, "x", b"x")))
    legacy = LegacyLogprobs(2)
    legacy.extend([twin], 0)
    assert (legacy.as_json() or {})["top_logprobs"] == [{"x": -2.0}]


def test_no_more_alternatives_than_asked_for() -> None:
    entry = Logprob(1, -0.1, "a", b"a", 1, 0, tuple(TopLogprob(n, -n, str(n), b"") for n in range(5)))
    chat = chat_logprobs([entry], 2)
    assert chat
    assert [top["token"] for top in chat["content"][0]["top_logprobs"]] == ["0", "1"]


def test_offsets_count_from_the_echoed_prompt_and_never_below_zero() -> None:
    legacy = LegacyLogprobs(0)
    legacy.add_first("<s>")
    legacy.extend([Logprob(1, -1, "H", b"H", 1, 3), Logprob(2, -1, "i", b"i", 1, 4)], -3)
    legacy.extend([Logprob(3, -1, "!", b"!", 1, 0)], 2)
    assert (legacy.as_json() or {})["text_offset"] == [0, 0, 1, 2]
