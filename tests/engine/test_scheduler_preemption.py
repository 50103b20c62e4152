"""The scheduler's policy, sentence by sentence: what happens when the pool is too small."""

import pytest

from pagewire.engine.request import Request, State
from tests.scheduling import add, counts, make_scheduler, row_of, run_step, run_until_preemption
from tests.toy_model import ToyEngine, expected_output


class TestPreemption:
    def test_the_latest_request_is_preempted_when_no_block_is_free(self) -> None:
        scheduler = make_scheduler(num_blocks=6)
        first, last = add(scheduler, 7), add(scheduler, 7)
        plan = run_until_preemption(scheduler)
        assert (last.num_preempted, list(counts(plan))) == (1, [first])
        assert (last.blocks, last.slot, last.num_computed, last.num_preempted) == ((), -1, 0, 1)
        assert scheduler.preemptions == 1

    def test_the_lowest_in_rank_gives_way_to_itself(self) -> None:
        scheduler = make_scheduler(num_blocks=5)
        first, last = add(scheduler, 5), add(scheduler, 8)
        plan = run_until_preemption(scheduler)
        assert (last.num_preempted, list(counts(plan))) == (1, [first])

    def test_a_preempted_request_resumes_before_newer_ones(self) -> None:
        scheduler = make_scheduler(num_blocks=6)
        first, preempted = add(scheduler, 7), add(scheduler, 7)
        run_until_preemption(scheduler)
        newer = add(scheduler, 2)
        scheduler.finish(first)
        plan = run_step(scheduler)
        assert plan.admitted == (preempted, newer)

    def test_a_preempted_request_computes_its_output_anew_and_finds_what_is_left_in_the_cache(self) -> None:
        scheduler = make_scheduler(num_blocks=6)
        first, preempted = add(scheduler, 7), add(scheduler, 7)
        run_until_preemption(scheduler)
        tokens = list(preempted.tokens)
        scheduler.finish(first)
        row = row_of(run_step(scheduler), preempted)
        assert row.start >= 4
        assert row.token_ids == tokens[row.start :]
        assert row.samples
        assert preempted.num_cached == 0  # usage counts what the first admission found

    def test_nobody_is_admitted_in_the_step_of_a_preemption(self) -> None:
        scheduler = make_scheduler(num_blocks=6)
        add(scheduler, 7)
        add(scheduler, 7)
        small = add(scheduler, 1)
        assert run_until_preemption(scheduler).admitted == ()
        assert small.state is State.WAITING

    def test_a_request_is_not_admitted_on_the_blocks_that_running_ones_grow_into(self) -> None:
        scheduler = make_scheduler(num_blocks=4)
        add(scheduler, 8)
        run_step(scheduler)
        small = add(scheduler, 4)
        assert scheduler.kv_usage == 0.5
        run_step(scheduler)
        assert small.state is State.WAITING

    def test_a_row_planned_before_a_preemption_is_stale(self) -> None:
        scheduler = make_scheduler(num_blocks=6)
        add(scheduler, 7)
        last = add(scheduler, 7)
        previous = scheduler.plan()
        while True:
            plan = scheduler.plan()  # overlapping: the previous step is collected after this one is planned
            tokens = {row.request: row.request.num_tokens for row in previous.rows}
            for row in previous.rows:
                scheduler.collect(row, 7)
            if last.num_preempted:
                break
            previous = plan
        assert (last.num_tokens, last.in_flight) == (tokens[last], 0)


class TestUnschedulable:
    def test_a_prompt_longer_than_the_pool_is_reported_and_the_others_go_on(self) -> None:
        scheduler = make_scheduler(num_blocks=2)
        too_long, fitting = add(scheduler, 9), add(scheduler, 8)
        plan = run_step(scheduler)
        assert plan.unschedulable == (too_long,)
        assert too_long.state is State.FINISHED
        assert list(counts(plan)) == [fitting]

    def test_a_request_that_can_never_run_is_known_before_it_is_queued(self) -> None:
        scheduler = make_scheduler(num_blocks=2)
        assert scheduler.fits_alone(Request(key=0, prompt=[1] * 8, max_tokens=1))
        assert not scheduler.fits_alone(Request(key=0, prompt=[1] * 9, max_tokens=1))

    @pytest.mark.parametrize("overlap", [False, True])
    def test_a_request_that_outgrows_the_pool_ends_with_the_last_token_that_can_be_computed(
        self, overlap: bool
    ) -> None:
        scheduler = make_scheduler(num_blocks=3)
        engine = ToyEngine(scheduler, overlap)
        request = add(scheduler, [1, 2, 3, 4, 5])
        expected = expected_output(request.prompt, 50)
        assert len(expected) > 8
        for _ in range(12):
            engine.step()
        assert engine.outcomes == {request: "unschedulable"}
        assert request.output == expected[:8]  # 12 positions hold the prompt and 7 tokens, which give the 8th
        assert (scheduler.kv_usage, scheduler.preemptions) == (0, 0)

    def test_a_request_that_fills_the_pool_exactly_is_not_reported(self) -> None:
        scheduler = make_scheduler(num_blocks=2)
        request = add(scheduler, 5, max_tokens=4)
        for _ in range(4):
            assert run_step(scheduler).unschedulable == ()
        assert request.num_output == 4
