"""Shortening conversations: what is dropped, and how the longest that fits is found."""

import asyncio
import tracemalloc
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagewire.frontend.openai.errors import ApiError, invalid
from pagewire.frontend.responses.truncation import Shortenings, longest_fitting


def roles(versions: Sequence[Sequence[Mapping[str, str]]]) -> list[str]:
    return ["".join(message["role"][0] for message in version) for version in versions]


@pytest.mark.parametrize(
    ("conversation", "expected"),
    [
        ("u", ["u"]),
        ("s", ["s"]),
        ("uau", ["uau", "u"]),
        ("sduau", ["sduau", "sdu"]),
        ("suatau", ["suatau", "su"]),
        ("auau", ["auau", "uau", "u"]),
        ("sua", ["sua"]),
    ],
)
def test_instructions_stay_and_the_rest_begins_with_the_user(conversation: str, expected: list[str]) -> None:
    names = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool"}
    assert roles(Shortenings([{"role": names[letter]} for letter in conversation])) == expected


def test_versions_are_not_made_before_they_are_tried() -> None:
    messages = [{"role": "user"}] * 5_000
    tracemalloc.start()
    versions = Shortenings(messages)
    # All of them have 100 MB.
    assert (len(versions), len(versions[-1])) == (5_000, 1)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40, unique=True), st.integers(0, 101))
def test_the_longest_that_fits_is_found_in_few_steps(lengths: list[int], room: int) -> None:
    lengths.sort(reverse=True)
    tried = []

    async def attempt(length: int) -> int:
        tried.append(length)
        if length > room:
            raise invalid("too long", code="context_length_exceeded")
        return length

    fitting = [length for length in lengths if length <= room]
    if fitting:
        assert asyncio.run(longest_fitting(lengths, attempt)) == fitting[0]
    else:
        with pytest.raises(ApiError):
            asyncio.run(longest_fitting(lengths, attempt))
    assert len(tried) == len(set(tried)) <= 7


async def test_other_errors_are_not_about_length() -> None:
    async def attempt(length: int) -> int:
        raise invalid("the template refuses")

    with pytest.raises(ApiError, match="the template refuses"):
        await longest_fitting([2, 1], attempt)
