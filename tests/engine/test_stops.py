from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from pagewire.engine.stops import StopStrings


def first_match(text: str, stop: Sequence[str]) -> tuple[int, str] | None:
    """Where the first stop string to be complete begins, and which; the longest if several end together."""
    ends = [(text.find(each) + len(each), -len(each), each) for each in stop if each in text]
    if not ends:
        return None
    end, _, matched = min(ends)
    return end - len(matched), matched


def expected(text: str, stop: Sequence[str], include: bool) -> tuple[str, str | None]:
    if (match := first_match(text, stop)) is None:
        return text, None
    start, matched = match
    return text[: start + len(matched) if include else start], matched


stop_lists = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=4)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(pieces=st.lists(st.text("abcd", max_size=6), max_size=12), stop=stop_lists, include=st.booleans())
def test_the_text_does_not_depend_on_how_it_arrives(pieces: list[str], stop: list[str], include: bool) -> None:
    strings = StopStrings(stop, include)
    sent = "".join([strings.push(piece) for piece in pieces] + [strings.flush()])
    assert (sent, strings.matched) == expected("".join(pieces), stop, include)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(pieces=st.lists(st.text("abcd", max_size=6), max_size=12), stop=stop_lists)
def test_no_more_is_held_back_than_may_become_a_stop_string(pieces: list[str], stop: list[str]) -> None:
    strings, sent, text = StopStrings(stop, include_stop=False), "", ""
    for piece in pieces:
        sent += strings.push(piece)
        text += piece
        if strings.matched is not None:
            return
        beginnings = [n for each in stop for n in range(len(each)) if text.endswith(each[:n])]
        assert sent == text[: len(text) - max(beginnings)]


def test_a_stop_string_that_never_comes_delays_nothing_else() -> None:
    strings = StopStrings(["zzzz"], include_stop=False)
    assert [strings.push(char) for char in "xxzxx"] == ["x", "x", "", "zx", "x"]


def test_the_stop_string_complete_first_wins() -> None:
    strings = StopStrings(["bcd", "c"], include_stop=False)
    assert (strings.push("abcd"), strings.matched) == ("ab", "c")


def test_the_longest_of_those_complete_together_is_cut() -> None:
    strings = StopStrings(["b", "ab"], include_stop=False)
    assert (strings.push("xab"), strings.matched) == ("x", "ab")


def test_nothing_is_sent_after_a_match() -> None:
    strings = StopStrings(["a"], include_stop=True)
    assert [strings.push("xa"), strings.push("ya"), strings.flush()] == ["xa", "", ""]


def test_an_empty_stop_string_never_matches() -> None:
    strings = StopStrings([""], include_stop=False)
    assert (strings.push("text"), strings.matched) == ("text", None)
