"""The queue of requests that wait for admission."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from pagewire.engine.request import Request


class WaitingQueue:
    """Requests in the order of their rank; every operation is O(log n), amortized.

    A discarded request leaves its heap entry behind. Entries are dropped when they come to the front, or all together
    when they outnumber the living, so that a stuck queue does not keep aborted prompts in memory.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._heap: list[tuple[tuple[int, int], Request]] = []
        self._members: set[Request] = set()
        self._num_tokens = 0

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._members)

    @property
    def num_tokens(self) -> int:
        """Tokens of all waiting requests together."""
        return self._num_tokens

    def push(self, request: Request) -> None:
        """Add a request that was never discarded; its rank and tokens stay as they are while it waits."""
        heappush(self._heap, (request.rank, request))
        self._members.add(request)
        self._num_tokens += request.num_tokens

    def peek(self) -> Request:
        """The request with the lowest rank; raises IndexError when there is none."""
        while self._heap[0][1] not in self._members:
            heappop(self._heap)
        return self._heap[0][1]

    def pop(self) -> Request:
        """Remove and return the request with the lowest rank; raises IndexError when there is none."""
        request = self.peek()
        heappop(self._heap)
        self._forget(request)
        return request

    def discard(self, request: Request) -> None:
        """Remove a waiting request from anywhere in the queue, for good."""
        self._forget(request)
        if len(self._heap) > 2 * len(self._members):
            self._heap = [entry for entry in self._heap if entry[1] in self._members]
            heapify(self._heap)

    def _forget(self, request: Request) -> None:
        self._members.remove(request)
        self._num_tokens -= request.num_tokens

    def check_invariants(self) -> None:
        """Assert that the heap holds each member once and that the totals are right."""
        living = [request for _, request in self._heap if request in self._members]
        assert len(living) == len(self._members) == len(set(living))
        assert self._num_tokens == sum(request.num_tokens for request in self._members)

    def __iter__(self) -> Iterator[Request]:
        """The waiting requests, in no particular order."""
        return iter(self._members)
