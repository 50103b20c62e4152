"""The memory that request bodies take: of all requests together, from a body's first bytes to its request's end."""

from collections.abc import Callable

from pagewire.frontend.openai.errors import overloaded

# Of each body, what does not count: aiohttp reads about as much ahead on any connection. So small requests get in
# however much others send.
FREE_BYTES = 64 * 1024


class BodyMemory:
    """How many bytes of bodies are held; never more than ``limit``."""

    def __init__(self, limit: int, count_refusal: Callable[[], None]):
        """``count_refusal`` is called for every body that finds no room."""
        self._limit = limit
        self._count_refusal = count_refusal
        self.held = 0

    def check(self, more: int) -> None:
        """Raise ApiError 429 if there is no room for so many bytes more."""
        if more > 0 and self.held + more > self._limit:
            self._count_refusal()
            raise overloaded(f"The server holds {self.held} bytes of request bodies; try again soon.")


class BodyShare:
    """What one body takes of the memory, while the block lasts that it is the context of."""

    def __init__(self, memory: BodyMemory):
        """Nothing is taken yet."""
        self._memory = memory
        self._held = 0

    def __enter__(self) -> "BodyShare":
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give everything back."""
        self._memory.held -= self._held

    def expect(self, size: int) -> None:
        """Raise ApiError 429 if a body of ``size`` bytes would find no room now."""
        self._memory.check(self._more(size))

    def grow(self, size: int) -> None:
        """Hold ``size`` bytes in all; raises ApiError 429 if there is no room for them."""
        more = self._more(size)
        self._memory.check(more)
        self._memory.held += more
        self._held += more

    def _more(self, size: int) -> int:
        return max(0, size - FREE_BYTES) - self._held
