"""Which messages remain when a conversation is too long and its client would rather lose the oldest."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from pagewire.frontend.openai.errors import ApiError

S = TypeVar("S")
T = TypeVar("T")
Message = Mapping[str, Any]

_INSTRUCTING = frozenset({"system", "developer"})


def shortenings(messages: Sequence[Message]) -> list[list[Message]]:
    """The conversation and its shorter versions, longest first.

    The instructions at the beginning stay. The rest begins with a message of the user, so that no answer and no
    result of a call is left without what it belongs to.
    """
    leading = next((index for index, message in enumerate(messages) if message["role"] not in _INSTRUCTING), 0)
    starts = [index for index in range(leading + 1, len(messages)) if messages[index]["role"] == "user"]
    return [list(messages), *([*messages[:leading], *messages[start:]] for start in starts)]


async def longest_fitting(versions: Sequence[S], attempt: Callable[[S], Awaitable[T]]) -> T:
    """What ``attempt`` gives for the first version that fits; each version is shorter than the one before.

    Raises the ApiError of the last one if none fits, and any other error at once.
    """
    if len(versions) == 1 or await _fits(versions[0], attempt):
        return await attempt(versions[0])
    low, high = 1, len(versions) - 1
    while low < high:
        middle = (low + high) // 2
        if await _fits(versions[middle], attempt):
            high = middle
        else:
            low = middle + 1
    return await attempt(versions[low])


async def _fits(version: S, attempt: Callable[[S], Awaitable[T]]) -> bool:
    try:
        await attempt(version)
    except ApiError as error:
        if error.code != "context_length_exceeded":
            raise
        return False
    return True
