"""The scheduler's policy, sentence by sentence: what is found in the prefix cache, and when to wait for it."""

import pytest

from pagewire.engine.request import State
from pagewire.engine.scheduler import MAX_PASSED_OVER
from tests.scheduling import add, counts, make_scheduler, row_of, run_step, run_step_for


class TestPrefixCache:
    def test_a_repeated_prompt_finds_its_full_blocks_and_counts_them(self) -> None:
        scheduler = make_scheduler()
        prompt = list(range(10))
        scheduler.finish(run_step_for(scheduler, prompt))
        again = run_step_for(scheduler, prompt)
        assert again.num_cached == 8
        assert (scheduler.prefix_queries, scheduler.prefix_hits) == (20, 8)

    def test_a_prompt_that_is_cached_whole_still_computes_its_last_token(self) -> None:
        scheduler = make_scheduler()
        prompt = list(range(8))
        scheduler.finish(run_step_for(scheduler, prompt))
        again = add(scheduler, prompt)
        row = row_of(run_step(scheduler), again)
        assert (row.start, row.count, row.samples) == (4, 4, True)
        assert again.num_cached == 4

    def test_blocks_are_shared_while_their_first_owner_still_runs(self) -> None:
        scheduler = make_scheduler()
        first = run_step_for(scheduler, [*range(8), 1])
        second = run_step_for(scheduler, [*range(8), 2])
        assert first.blocks[:2] == second.blocks[:2]
        assert first.blocks[2] != second.blocks[2]

    def test_the_next_turn_of_a_conversation_finds_the_generated_blocks_too(self) -> None:
        scheduler = make_scheduler()
        first = run_step_for(scheduler, list(range(6)))
        for _ in range(7):
            run_step(scheduler)
        scheduler.finish(first)
        assert run_step_for(scheduler, [*first.tokens, 5, 6]).num_cached == 12

    def test_salt_isolates_tenants(self) -> None:
        scheduler = make_scheduler()
        prompt = list(range(12))
        scheduler.finish(run_step_for(scheduler, prompt, salt="one"))
        assert run_step_for(scheduler, prompt, salt="two").num_cached == 0
        assert run_step_for(scheduler, prompt).num_cached == 0
        assert run_step_for(scheduler, prompt, salt="one").num_cached == 8

    def test_without_prefix_caching_nothing_is_found_or_counted(self) -> None:
        scheduler = make_scheduler(prefix_caching=False)
        prompt = list(range(12))
        scheduler.finish(run_step_for(scheduler, prompt))
        assert run_step_for(scheduler, prompt).num_cached == 0
        assert scheduler.prefix_queries == 0

    def test_a_request_that_wants_its_whole_prompt_computed_finds_nothing_but_leaves_its_blocks(self) -> None:
        scheduler = make_scheduler()
        prompt = list(range(12))
        scheduler.finish(run_step_for(scheduler, prompt))
        whole = add(scheduler, prompt, reuse_prefix=False)
        assert row_of(run_step(scheduler), whole).start == whole.num_cached == 0
        other = list(range(20, 32))
        scheduler.finish(run_step_for(scheduler, other, reuse_prefix=False))
        assert run_step_for(scheduler, other).num_cached == 8

    @pytest.mark.parametrize("full", [{"max_num_seqs": 1}, {"num_blocks": 4}], ids=["slots", "blocks"])
    def test_nothing_is_looked_up_for_a_request_that_cannot_be_admitted_whatever_is_found(
        self, full: dict[str, int]
    ) -> None:
        scheduler = make_scheduler(**full)
        run_step_for(scheduler, list(range(13)))
        blocked = add(scheduler, list(range(13)))
        run_step(scheduler)
        assert (blocked.state, blocked.hashes) == (State.WAITING, [])

    def test_blocks_are_not_found_before_they_are_collected(self) -> None:
        scheduler = make_scheduler(max_num_batched_tokens=8)
        prompt = list(range(12))
        aborted = add(scheduler, prompt)
        rows = scheduler.plan().rows + scheduler.plan().rows
        scheduler.finish(aborted)
        for row in rows:
            scheduler.collect(row, 7)
        again = add(scheduler, prompt)
        assert row_of(run_step(scheduler), again).start == 0


class TestWaitingForAPrefix:
    def test_a_request_waits_for_a_prefix_that_another_computes_right_now_and_then_shares_it(self) -> None:
        scheduler = make_scheduler(max_num_batched_tokens=8)
        first, second = add(scheduler, [*range(16), 1]), add(scheduler, [*range(16), 2])
        assert [list(counts(run_step(scheduler))) for _ in range(3)] == [[first], [first], [first, second]]
        assert second.num_cached == 16

    def test_a_request_does_not_wait_for_more_than_the_common_prefix(self) -> None:
        scheduler = make_scheduler(max_num_batched_tokens=8)
        first, second = add(scheduler, [*range(8), *[50] * 5]), add(scheduler, [*range(8), 60, 61])
        assert counts(run_step(scheduler)) == {first: 8}
        assert counts(run_step(scheduler)) == {first: 5, second: 2}

    def test_others_pass_a_request_that_waits_for_a_prefix(self) -> None:
        scheduler = make_scheduler(max_num_batched_tokens=20)
        first, second = add(scheduler, [*range(16), 1]), add(scheduler, [*range(16), 2])
        other = add(scheduler, 3)
        assert list(counts(run_step(scheduler))) == [first, other]
        assert second.state is State.WAITING

    def test_no_request_takes_the_slot_of_one_that_it_passes(self) -> None:
        scheduler = make_scheduler(max_num_seqs=2)
        first, second = add(scheduler, [*range(8), 1]), add(scheduler, [*range(8), 2])
        other = add(scheduler, 3)
        assert list(counts(run_step(scheduler))) == [first]
        assert list(counts(run_step(scheduler))) == [first, second]
        assert other.state is State.WAITING

    def test_no_request_takes_the_blocks_of_one_that_it_passes(self) -> None:
        scheduler = make_scheduler(num_blocks=9)
        first, second = add(scheduler, [*range(8), 1]), add(scheduler, [*range(8), 2])
        other = add(scheduler, 12)
        assert list(counts(run_step(scheduler))) == [first]  # 6 free blocks would do for the 3 of the other
        assert list(counts(run_step(scheduler))) == [first, second, other]

    def test_the_wait_ends_when_the_other_is_aborted(self) -> None:
        scheduler = make_scheduler(max_num_batched_tokens=8)
        first, second = add(scheduler, [*range(16), 1]), add(scheduler, [*range(16), 2])
        run_step(scheduler)
        scheduler.finish(first)
        assert counts(run_step(scheduler)) == {second: 8}
        assert second.num_cached == 8

    def test_a_request_does_not_wait_for_a_prefix_that_was_computed_and_forgotten(self) -> None:
        scheduler = make_scheduler(num_blocks=8, max_num_batched_tokens=64)
        prompt = list(range(8))
        known = run_step_for(scheduler, prompt)
        copy = run_step_for(scheduler, prompt, reuse_prefix=False)
        scheduler.finish(known)
        scheduler.finish(run_step_for(scheduler, 4 * [50]))
        evicting = add(scheduler, 16)
        run_step(scheduler)
        scheduler.finish(evicting)
        assert copy.state is State.RUNNING
        assert run_step_for(scheduler, prompt).num_cached == 0

    def test_only_a_few_waiting_requests_are_passed(self) -> None:
        scheduler = make_scheduler(max_num_seqs=32)
        same = [add(scheduler, [*range(8), n]) for n in range(MAX_PASSED_OVER + 1)]
        other = add(scheduler, 3)
        assert list(counts(run_step(scheduler))) == [same[0]]
        assert set(counts(run_step(scheduler))) == {*same, other}
