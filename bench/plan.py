"""What one run will do, settled before it starts: which conversations, and when each begins."""

import itertools
import random
from collections.abc import Iterable, Sequence

from msgspec import Struct

from pagewire.bench.arrivals import Arrivals, plan_arrivals
from pagewire.bench.results import LoadSettings, Settings
from pagewire.bench.workloads import Conversation, Workload, make_workload

_DEFAULT_OPEN_REQUESTS = 100
_DEFAULT_CLOSED_REQUESTS = 16
_DEFAULT_ROUNDS = 4


class Plan(Struct, frozen=True):
    """The conversations of a run in order. ``offsets`` (seconds) None is a closed loop.

    ``num_requests`` counts the turns of all of them; None where only a duration ends the run.
    """

    conversations: Iterable[Conversation]
    offsets: list[float] | None
    num_requests: int | None


def level_label(load: LoadSettings, level: float) -> str:
    """Name a level of load the way reports do."""
    match load.kind:
        case "closed":
            label = f"concurrency {level:g}"
        case "open":
            ramp = f" to {load.end_rate:g}" if load.arrivals == "ramp" else ""
            label = f"{level:g}{ramp} req/s {load.arrivals}"
        case "trace":
            label = f"trace x{level:g}"
    return f"{load.name}: {label}" if load.name else label


def make_plan(settings: Settings, level: float, repeat: int) -> Plan:
    """Plan one repeat of one level. Every server gets the same plan; every repeat and level has prompts of its own."""
    load = settings.load
    seed = f"{load.seed}/{level_label(load, level)}/{repeat}"
    workload = make_workload(settings.workload, seed)
    if load.kind == "closed":
        return _closed_plan(load, workload, level)
    if load.kind == "trace":
        offsets = _trace_offsets(load, workload, level)
    else:
        unlimited = load.requests is None and load.duration_s is None
        count = _DEFAULT_OPEN_REQUESTS if unlimited else load.requests
        arrivals = Arrivals(load.arrivals, level, load.burstiness, load.end_rate)
        offsets = plan_arrivals(arrivals, random.Random(f"{seed}/arrivals"), count, load.duration_s)
    # Made ahead: making a long prompt when it is due would delay it.
    conversations = [workload.conversation(index) for index in range(len(offsets))]
    return Plan(conversations, offsets, _count_turns(conversations))


def _closed_plan(load: LoadSettings, workload: Workload, level: float) -> Plan:
    count = load.requests
    if count is None and load.duration_s is None:
        count = max(_DEFAULT_CLOSED_REQUESTS, _DEFAULT_ROUNDS * int(level))
    if count is None:
        return Plan(map(workload.conversation, itertools.count()), None, None)
    conversations = [workload.conversation(index) for index in range(count)]
    return Plan(conversations, None, _count_turns(conversations))


def _count_turns(conversations: Sequence[Conversation]) -> int:
    return sum(len(conversation.turns) for conversation in conversations)


def _trace_offsets(load: LoadSettings, workload: Workload, level: float) -> list[float]:
    offsets = [offset / level for offset in workload.offsets or []]
    if load.duration_s is not None:
        offsets = [offset for offset in offsets if offset < load.duration_s]
    return offsets[: load.requests]
