"""Helpers to drive a scheduler by hand; blocks hold 4 tokens."""

from itertools import count
from typing import Any

from pagewire.engine.plan import Plan, Row
from pagewire.engine.request import Request
from pagewire.engine.scheduler import Scheduler, SchedulerConfig

keys = count()


def make_scheduler(**config: Any) -> Scheduler:
    return Scheduler(
        SchedulerConfig(
            **{"num_blocks": 64, "max_num_seqs": 8, "max_num_batched_tokens": 32, "block_size": 4, **config}
        )
    )


def add(scheduler: Scheduler, prompt: int | list[int], max_tokens: int = 50, **fields: Any) -> Request:
    """Queue a request with the given prompt, or with one of that many tokens that no other request has."""
    key = next(keys)
    tokens = [1000 + key] * prompt if isinstance(prompt, int) else prompt
    request = Request(key=key, prompt=tokens, max_tokens=max_tokens, **fields)
    scheduler.add(request)
    return request


def run_step(scheduler: Scheduler) -> Plan:
    """Plan and collect one step in which every row samples token 7."""
    plan = scheduler.plan()
    for row in plan.rows:
        assert row.epoch == row.request.epoch
        scheduler.collect(row, 7 if row.samples else None)
    scheduler.check_invariants()
    return plan


def run_step_for(scheduler: Scheduler, prompt: list[int], **fields: Any) -> Request:
    """Queue a request and run the step that computes its prompt."""
    request = add(scheduler, prompt, **fields)
    run_step(scheduler)
    assert request.num_output == 1
    return request


def run_until_preemption(scheduler: Scheduler) -> Plan:
    before = scheduler.preemptions
    while True:
        plan = run_step(scheduler)
        if scheduler.preemptions > before:
            return plan


def counts(plan: Plan) -> dict[Request, int]:
    return {row.request: row.count for row in plan.rows}


def row_of(plan: Plan, request: Request) -> Row:
    (row,) = [row for row in plan.rows if row.request is request]
    return row
