"""Which messages remain when a conversation is too long and its client would rather lose the oldest."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from pagewire.frontend.openai.errors import ApiError

S = TypeVar("S")
T = TypeVar("T")
Message = Mapping[str, Any]

_INSTRUCTING = frozenset({"system", "developer"})


class Shortenings(Sequence[list[Message]]):
    """The conversation and its shorter versions, longest first. Each is made when it is asked for.

    The instructions at the beginning stay. The rest begins with a message of the user, so that no answer and no
    result of a call is left without what it belongs to.
    """

    def __init__(self, messages: Sequence[Message]):
        """Find where the versions begin."""
        self._messages = messages
        roles = [message["role"] for message in messages]
        self._leading = next((index for index, role in enumerate(roles) if role not in _INSTRUCTING), 0)
        later = range(self._leading + 1, len(messages))
        self._starts = [self._leading, *(index for index in later if roles[index] == "user")]

    def __len__(self) -> int:
        """How many versions there are, the whole conversation included."""
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> list[Message]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[Message]]: ...
    def __getitem__(self, index: int | slice) -> list[Message] | list[list[Message]]:
        """One version, or several."""
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        return [*self._messages[: self._leading], *self._messages[self._starts[index] :]]


async def longest_fitting(versions: Sequence[S], attempt: Callable[[S], Awaitable[T]]) -> T:
    """What ``attempt`` gives for the first version that fits; each version is shorter than the one before.

    Raises the ApiError of the last one if none fits, and any other error at once. No version is tried twice.
    """
    best, low, high = await _try(versions[0], attempt), 1, len(versions) - 1
    if isinstance(best, ApiError):
        while low <= high:
            middle = (low + high) // 2
            result = await _try(versions[middle], attempt)
            if isinstance(result, ApiError):
                low = middle + 1
                if isinstance(best, ApiError):
                    best = result
            else:
                best, high = result, middle - 1
    if isinstance(best, ApiError):
        raise best
    return best


async def _try(version: S, attempt: Callable[[S], Awaitable[T]]) -> T | ApiError:
    """What ``attempt`` gives, or the error that says that the version is too long."""
    try:
        return await attempt(version)
    except ApiError as error:
        if error.code != "context_length_exceeded":
            raise
        return error
