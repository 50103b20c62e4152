"""One step as data: what the scheduler decides and the runner computes."""

from dataclasses import dataclass, field

from msgspec import Struct

from pagewire.engine.request import Request


class Row(Struct, frozen=True, eq=False):
    """One request's part of a step: compute tokens ``start`` to ``start + count`` of the sequence.

    A struct rather than a dataclass because one is made for every request in every step.
    """

    request: Request
    epoch: int
    start: int
    count: int
    samples: bool  # the row computes the last token there is, so its last logits give the next one
    block_table: tuple[int, ...]  # the same object as in the previous row unless blocks were added
    token_ids: list[int]  # shorter than count by one when the last token is still in flight on the device
    slot: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One step, and what happened to requests while it was planned."""

    rows: tuple[Row, ...]
    admitted: tuple[Request, ...]  # got a slot in this step, for the first time or after preemption
    unschedulable: tuple[Request, ...]  # too long for the whole pool; they are finished, their owner must be told


@dataclass(slots=True)
class Draft:
    """A plan in the making."""

    budget: int  # tokens left
    rows: list[Row] = field(default_factory=list)
    admitted: list[Request] = field(default_factory=list)
    unschedulable: list[Request] = field(default_factory=list)
    admissions_open: bool = True
    passed_over: list[Request] = field(default_factory=list)  # popped from the queue for the time of planning
    claimed_blocks: int = 0  # what those passed over would take: nobody may be admitted at their expense

    def finished(self) -> Plan:
        """The plan, immutable."""
        return Plan(tuple(self.rows), tuple(self.admitted), tuple(self.unschedulable))
