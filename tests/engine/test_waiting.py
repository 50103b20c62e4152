import random

import pytest

from pagewire.engine.request import Request
from pagewire.engine.waiting import WaitingQueue


def request(*rank: int, num_tokens: int = 1) -> Request:
    made = Request(key=rank, prompt=[1] * num_tokens, max_tokens=1)
    made.rank = (rank[0], rank[1])
    return made


def test_requests_leave_in_the_order_of_rank() -> None:
    queue = WaitingQueue()
    ranks = [(priority, arrival) for priority in (0, 1, -1) for arrival in range(5)]
    for rank in random.Random(0).sample(ranks, len(ranks)):
        queue.push(request(*rank))
    assert [queue.pop().rank for _ in ranks] == sorted(ranks)


def test_discarded_requests_never_come_out() -> None:
    queue = WaitingQueue()
    requests = [request(0, arrival) for arrival in range(6)]
    for waiting in requests:
        queue.push(waiting)
    for index in (0, 3, 5):
        queue.discard(requests[index])
        queue.check_invariants()
    assert [queue.pop() for _ in range(len(queue))] == [requests[1], requests[2], requests[4]]


def test_a_popped_request_may_come_back() -> None:
    queue = WaitingQueue()
    first, second = request(0, 0), request(0, 1)
    queue.push(first)
    queue.push(second)
    queue.push(queue.pop())
    assert queue.peek() is first


def test_tokens_are_counted_while_they_wait() -> None:
    queue = WaitingQueue()
    short, long = request(0, 0, num_tokens=3), request(0, 1, num_tokens=40)
    queue.push(short)
    queue.push(long)
    assert queue.num_tokens == 43
    queue.discard(long)
    assert (queue.num_tokens, len(queue)) == (3, 1)
    queue.pop()
    assert (queue.num_tokens, len(queue)) == (0, 0)


def test_aborted_prompts_do_not_stay_behind_a_stuck_head() -> None:
    queue = WaitingQueue()
    head = request(0, 0)
    queue.push(head)
    for arrival in range(1, 1000):
        waiting = request(0, arrival)
        queue.push(waiting)
        queue.discard(waiting)
    assert len(queue._heap) <= 3
    assert queue.peek() is head


def test_an_empty_queue_has_no_first_request() -> None:
    queue = WaitingQueue()
    with pytest.raises(IndexError):
        queue.peek()
    queue.push(request(0, 0))
    queue.discard(queue.peek())
    with pytest.raises(IndexError):
        queue.pop()
