"""Random schedules: whatever happens to a request, its output is the one computed directly."""

import random
from collections import Counter
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagewire.engine.plan import Plan
from pagewire.engine.request import Request, State
from pagewire.engine.scheduler import Scheduler, SchedulerConfig
from tests.toy_model import ToyEngine, expected_output

MAX_STEPS = 5000  # far more than any scenario needs: a scheduler that gets there is stuck
MOMENTS_PER_STEP = 3  # interrupts of a ToyEngine step


@dataclass(frozen=True)
class Arrival:
    """A request, the step of its arrival, and after how many moments it is aborted, if ever."""

    step: int
    prompt: tuple[int, ...]
    max_tokens: int
    priority: int = 0
    salt: str = ""
    reuse_prefix: bool = True
    aborted_after: int | None = None


@dataclass(frozen=True)
class Scenario:
    config: SchedulerConfig
    overlap: bool
    arrivals: tuple[Arrival, ...]


class CheckedScheduler(Scheduler):
    """A scheduler whose every plan is checked."""

    @property
    def capacity(self) -> int:
        return self.config.num_blocks * self.config.block_size

    def plan(self) -> Plan:
        decodes = [request for request in self._running if self._wants_to_decode(request)]
        plan = super().plan()
        self.check_invariants()
        assert sum(row.count for row in plan.rows) <= self.config.max_num_batched_tokens
        assert all(row.count > 0 for row in plan.rows)
        assert all(0 <= row.count - len(row.token_ids) <= row.samples for row in plan.rows)
        planned = [row.request for row in plan.rows]
        assert len(set(planned)) == len(planned)
        assert all(request.state is State.RUNNING for request in planned)
        served = {*planned, *(request for request in decodes if request.state is State.WAITING)}
        assert set(decodes) <= served, "a decode was left without its token"
        return plan

    def _wants_to_decode(self, request: Request) -> bool:
        num_known = request.num_tokens + request.in_flight
        at_end = num_known == request.num_prompt + request.max_tokens or num_known > self.capacity
        return num_known - request.num_computed == 1 and not at_end


class Run:
    """Plays a scenario and checks everything that can be checked on the way."""

    def __init__(self, scenario: Scenario) -> None:
        self.scheduler = CheckedScheduler(scenario.config)
        self.engine = ToyEngine(self.scheduler, scenario.overlap)
        self.requests: list[Request] = []
        self._due = sorted(scenario.arrivals, key=lambda arrival: arrival.step, reverse=True)
        self._aborts: dict[Request, int] = {}
        self._moment = 0

    def play(self) -> None:
        for step in count():
            assert step < MAX_STEPS, "the scheduler is stuck"
            self._add_arrivals(step)
            if not self._due and not self.scheduler.has_work:
                break
            self.engine.step(self._abort_some)
            self.scheduler.check_invariants()
        self.engine.step()
        self._check_end()

    def _add_arrivals(self, step: int) -> None:
        while self._due and self._due[-1].step <= step:
            arrival = self._due.pop()
            request = Request(
                key=len(self.requests),
                prompt=arrival.prompt,
                max_tokens=arrival.max_tokens,
                priority=arrival.priority,
                salt=arrival.salt,
                reuse_prefix=arrival.reuse_prefix,
            )
            self.requests.append(request)
            self.scheduler.add(request)
            if arrival.aborted_after is not None:
                self._aborts[request] = self._moment + arrival.aborted_after

    def _abort_some(self) -> None:
        self._moment += 1
        for request in [request for request, moment in self._aborts.items() if moment <= self._moment]:
            self.engine.finish(request, "aborted")
            del self._aborts[request]

    def _check_end(self) -> None:
        assert not self.scheduler.has_work
        assert self.scheduler.kv_usage == 0
        assert self.scheduler.waiting_tokens == 0
        assert set(self.engine.outcomes) == set(self.requests)
        for request in self.requests:
            self._check_output(request, self.engine.outcomes[request])

    def _check_output(self, request: Request, outcome: str) -> None:
        expected = expected_output(request.prompt, request.max_tokens)
        if outcome == "aborted":
            expected = expected[: request.num_output]
        elif outcome == "unschedulable":
            assert request.num_prompt + len(expected) - 1 > self.scheduler.capacity
            expected = expected[: max(0, self.scheduler.capacity + 1 - request.num_prompt)]
        assert request.output == expected, (request.key, outcome)
        assert request.num_cached < request.num_prompt


def random_prompt(rng: random.Random, roots: list[tuple[int, ...]]) -> tuple[int, ...]:
    """A continuation of something seen before, or something new; its end is short and likely to repeat."""
    prompt = rng.choice(roots) + tuple(rng.choices((1, 2), k=rng.randint(0, 6)))
    if rng.random() < 0.2:  # the next turn of a conversation
        roots.append(prompt + tuple(expected_output(prompt, 6)))
    return prompt


def random_scenario(seed: int, overlap: bool) -> Scenario:
    rng = random.Random(seed)
    block_size = rng.choice((1, 2, 4, 4, 5))
    config = SchedulerConfig(
        num_blocks=rng.randint(24, 96) // block_size,
        max_num_seqs=rng.randint(1, 8),
        max_num_batched_tokens=rng.randint(1, 24),
        max_mixed_prefill_tokens=rng.choice((None, rng.randint(1, 12))),
        block_size=block_size,
        prefix_caching=rng.random() < 0.9,
        policy=rng.choice(("fcfs", "priority")),
    )
    roots = [tuple(rng.choices((1, 2), k=rng.randint(1, 14))) for _ in range(3)]
    arrivals = [
        Arrival(
            step=rng.randint(0, 80),
            prompt=random_prompt(rng, roots),
            max_tokens=rng.randint(1, 24),
            priority=rng.randint(-1, 1),
            salt=rng.choice(("", "", "tenant")),
            reuse_prefix=rng.random() < 0.9,
            aborted_after=rng.randint(0, 60) if rng.random() < 0.2 else None,
        )
        for _ in range(40)
    ]
    return Scenario(config, overlap, tuple(arrivals))


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapping"])
def test_random_schedules_give_the_outputs_computed_directly(overlap: bool) -> None:
    runs = [Run(random_scenario(seed, overlap)) for seed in range(150)]
    for run in runs:
        run.play()
    # The schedules are only worth something if they go through the hard parts.
    outcomes = Counter(outcome for run in runs for outcome in run.engine.outcomes.values())
    assert all(outcomes[outcome] > 20 for outcome in ("done", "aborted", "unschedulable"))
    assert sum(run.scheduler.preemptions for run in runs) > 500
    assert sum(run.scheduler.prefix_hits for run in runs) > 5000


arrivals = st.builds(
    Arrival,
    step=st.integers(0, 12),
    prompt=st.lists(st.integers(1, 2), min_size=1, max_size=16).map(tuple),
    max_tokens=st.integers(1, 12),
    priority=st.integers(-1, 1),
    salt=st.sampled_from(("", "tenant")),
    reuse_prefix=st.booleans(),
    aborted_after=st.none() | st.integers(0, 12 * MOMENTS_PER_STEP),
)
configs = st.builds(
    SchedulerConfig,
    num_blocks=st.integers(1, 12),
    max_num_seqs=st.integers(1, 4),
    max_num_batched_tokens=st.integers(1, 12),
    block_size=st.integers(1, 4),
    prefix_caching=st.booleans(),
    policy=st.sampled_from(("fcfs", "priority")),
)
scenarios = st.builds(
    Scenario, config=configs, overlap=st.booleans(), arrivals=st.lists(arrivals, min_size=1, max_size=8).map(tuple)
)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(scenarios)
def test_any_small_scenario_gives_the_outputs_computed_directly(scenario: Scenario) -> None:
    Run(scenario).play()
