"""The scheduler's policy, sentence by sentence: the budget, the order, and the end of requests."""

import pytest

from pagewire.engine.request import Request, State
from tests.scheduling import add, counts, make_scheduler, run_step, run_until_preemption


class TestChunks:
    def test_a_prompt_longer_than_the_budget_is_computed_in_chunks_and_only_the_last_samples(self) -> None:
        scheduler = make_scheduler(max_num_batched_tokens=7)
        add(scheduler, 17)
        rows = [run_step(scheduler).rows[0] for _ in range(4)]
        assert [(row.start, row.count, row.samples) for row in rows] == [
            (0, 7, False),
            (7, 7, False),
            (14, 3, True),
            (17, 1, True),
        ]

    def test_a_row_carries_the_tokens_it_computes(self) -> None:
        scheduler = make_scheduler(max_num_batched_tokens=3)
        add(scheduler, [1, 2, 3, 4, 5])
        assert [run_step(scheduler).rows[0].token_ids for _ in range(3)] == [[1, 2, 3], [4, 5], [7]]

    def test_a_decode_is_not_starved_by_a_long_prompt(self) -> None:
        scheduler = make_scheduler(max_num_batched_tokens=8)
        decoding = [add(scheduler, 1) for _ in range(2)]
        run_step(scheduler)
        long = add(scheduler, 60)
        for _ in range(10):
            assert counts(run_step(scheduler)) == {decoding[0]: 1, decoding[1]: 1, long: 6}

    def test_a_decode_is_not_starved_by_a_more_urgent_prompt(self) -> None:
        scheduler = make_scheduler(policy="priority", max_num_batched_tokens=8)
        decoding = add(scheduler, 1, priority=1)
        run_step(scheduler)
        urgent = add(scheduler, 60, priority=0)
        for _ in range(5):
            assert counts(run_step(scheduler)) == {decoding: 1, urgent: 7}

    def test_prompts_share_what_decodes_leave_in_the_order_of_arrival(self) -> None:
        scheduler = make_scheduler(max_num_batched_tokens=10)
        first, second, third = add(scheduler, 8), add(scheduler, 6), add(scheduler, 6)
        assert counts(run_step(scheduler)) == {first: 8, second: 2}
        assert counts(run_step(scheduler)) == {first: 1, second: 4, third: 5}

    def test_a_step_that_decodes_takes_only_so_many_prompt_tokens(self) -> None:
        scheduler = make_scheduler(max_num_batched_tokens=10, max_mixed_prefill_tokens=4)
        first = add(scheduler, 10)
        assert counts(run_step(scheduler)) == {first: 10}
        second = add(scheduler, 6)
        assert counts(run_step(scheduler)) == {first: 1, second: 4}
        assert counts(run_step(scheduler)) == {first: 1, second: 2}

    def test_no_more_requests_run_than_the_budget_has_tokens(self) -> None:
        scheduler = make_scheduler(max_num_batched_tokens=3)
        requests = [add(scheduler, 1, max_tokens=1) for _ in range(5)]
        assert list(counts(scheduler.plan())) == requests[:3]
        assert scheduler.plan().rows == ()  # the last tokens of the three are in flight, but they still run
        assert scheduler.num_running == 3

    def test_no_more_requests_run_than_there_are_slots(self) -> None:
        scheduler = make_scheduler(max_num_seqs=2)
        requests = [add(scheduler, 4) for _ in range(3)]
        plan = run_step(scheduler)
        assert plan.admitted == tuple(requests[:2])
        assert {row.slot for row in plan.rows} == {0, 1}
        assert (scheduler.num_running, scheduler.num_waiting) == (2, 1)


class TestPriority:
    def test_lower_values_go_first_and_equal_ones_by_arrival(self) -> None:
        scheduler = make_scheduler(policy="priority", max_num_seqs=1)
        requests = [add(scheduler, 2, max_tokens=1, priority=priority) for priority in (1, 0, 1, 0)]
        served = []
        for _ in requests:
            (request,) = counts(run_step(scheduler))
            scheduler.finish(request)
            served.append(request)
        assert served == [requests[1], requests[3], requests[0], requests[2]]

    def test_first_come_first_served_ignores_priorities(self) -> None:
        scheduler = make_scheduler(policy="fcfs", max_num_seqs=1)
        first, _ = add(scheduler, 2, priority=5), add(scheduler, 2, priority=0)
        assert list(counts(run_step(scheduler))) == [first]

    def test_an_urgent_prompt_gets_the_budget_before_the_rest_of_a_running_one(self) -> None:
        scheduler = make_scheduler(policy="priority", max_num_batched_tokens=8)
        slow = add(scheduler, 40, priority=1)
        run_step(scheduler)
        urgent = add(scheduler, 6, priority=0)
        assert counts(run_step(scheduler)) == {urgent: 6, slow: 2}

    def test_the_request_of_the_lowest_priority_is_preempted(self) -> None:
        scheduler = make_scheduler(policy="priority", num_blocks=6)
        low = add(scheduler, 7, priority=1)
        run_step(scheduler)
        high = add(scheduler, 7, priority=0)
        while not scheduler.preemptions:
            run_step(scheduler)
        assert (low.state, high.state) == (State.WAITING, State.RUNNING)


class TestFinish:
    def test_finishing_a_running_request_frees_its_blocks_and_slot_at_once(self) -> None:
        scheduler = make_scheduler(max_num_seqs=1)
        first, second = add(scheduler, 9), add(scheduler, 9)
        run_step(scheduler)
        scheduler.finish(first)
        assert scheduler.kv_usage == 0
        assert list(counts(run_step(scheduler))) == [second]

    def test_finishing_a_waiting_request_removes_it_from_the_queue(self) -> None:
        scheduler = make_scheduler()
        aborted, other = add(scheduler, 9), add(scheduler, 4)
        assert (scheduler.num_waiting, scheduler.waiting_tokens) == (2, 13)
        scheduler.finish(aborted)
        assert (scheduler.num_waiting, scheduler.waiting_tokens) == (1, 4)
        assert list(counts(run_step(scheduler))) == [other]

    @pytest.mark.parametrize("state", list(State))
    def test_finishing_twice_is_finishing_once(self, state: State) -> None:
        scheduler = make_scheduler(num_blocks=6)
        request = Request(key=0, prompt=[1, 2], max_tokens=5)
        if state is not State.NEW:
            scheduler.add(request)
        if state in (State.RUNNING, State.FINISHED):
            run_step(scheduler)
        if state is State.FINISHED:
            scheduler.finish(request)
        assert request.state is state
        for _ in range(2):
            scheduler.finish(request)
            scheduler.check_invariants()
            assert request.state is State.FINISHED
            assert (scheduler.has_work, scheduler.kv_usage) == (False, 0)

    def test_a_preempted_request_can_be_finished(self) -> None:
        scheduler = make_scheduler(num_blocks=6)
        first, preempted = add(scheduler, 7), add(scheduler, 7)
        run_until_preemption(scheduler)
        scheduler.finish(preempted)
        scheduler.finish(first)
        assert not scheduler.has_work
        scheduler.check_invariants()

    def test_the_token_of_a_request_aborted_in_the_meantime_is_refused(self) -> None:
        scheduler = make_scheduler()
        request = add(scheduler, 3)
        (row,) = scheduler.plan().rows
        scheduler.finish(request)
        scheduler.collect(row, 7)
        assert request.output == []


class TestOverlap:
    def test_a_token_still_on_the_device_is_planned_without_its_id(self) -> None:
        scheduler = make_scheduler()
        add(scheduler, [1, 2, 3])
        first = scheduler.plan()
        (row,) = scheduler.plan().rows
        assert (row.start, row.count, row.token_ids, row.samples) == (3, 1, [], True)
        scheduler.collect(first.rows[0], 7)
        assert scheduler.plan().rows[0].start == 4

    def test_no_row_is_planned_beyond_the_last_wanted_token(self) -> None:
        scheduler = make_scheduler()
        request = add(scheduler, 3, max_tokens=2)
        first, second = scheduler.plan(), scheduler.plan()
        assert (len(first.rows), len(second.rows)) == (1, 1)
        assert scheduler.plan().rows == ()
        scheduler.collect(first.rows[0], 7)
        scheduler.collect(second.rows[0], 7)
        assert request.num_output == 2


class TestRows:
    def test_the_block_table_is_the_same_object_until_a_block_is_added(self) -> None:
        scheduler = make_scheduler()
        add(scheduler, 5)
        tables = [run_step(scheduler).rows[0].block_table for _ in range(5)]
        assert tables[0] is tables[1] is tables[2] is tables[3]
        assert tables[4][:2] == tables[0]
        assert len(tables[4]) == 3

    def test_a_plan_says_who_got_a_slot(self) -> None:
        scheduler = make_scheduler()
        first = add(scheduler, 5)
        assert run_step(scheduler).admitted == (first,)
        second = add(scheduler, 5)
        assert run_step(scheduler).admitted == (second,)
        assert run_step(scheduler).admitted == ()


@pytest.mark.parametrize("field", ["num_blocks", "max_num_seqs", "max_num_batched_tokens", "block_size"])
def test_a_size_below_one_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be at least 1, got 0"):
        make_scheduler(**{field: 0})
