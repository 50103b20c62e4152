"""Hypothesis strategies for JSON that looks like a request but may be anything."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from pagewire.frontend.openai.errors import ApiError

T = TypeVar("T")


def json_like(keys: Sequence[str], strings: Sequence[str]) -> st.SearchStrategy[Any]:
    """JSON values whose objects have some of ``keys`` and whose strings are often some of ``strings``."""
    leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(strings) | st.text(max_size=3)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(keys), inner, max_size=6),
        max_leaves=20,
    )


def outcome(read: Callable[[], T]) -> T | ApiError:
    """What reading a request gives, or how it is refused; anything else it raises is a fault of ours."""
    try:
        return read()
    except ApiError as error:
        return error
