"""When requests of an open-loop run start: offsets in seconds from the start of the run, known before it begins.

Planning them ahead is what makes the measurement safe against coordinated omission: a slow server can't delay the
requests that would have shown how slow it is.
"""

import itertools
import random
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

ArrivalKind = Literal["constant", "poisson", "gamma", "ramp"]


class Arrivals(Struct, frozen=True):
    """How requests arrive. ``rate`` in requests per second.

    ``burstiness`` is the shape of gamma distributed gaps: 1 is Poisson, below 1 comes in bursts, above 1 is more even.
    ``end_rate`` is where a ramp ends.
    """

    kind: ArrivalKind
    rate: float
    burstiness: float = 1.0
    end_rate: float | None = None


def plan_arrivals(arrivals: Arrivals, rng: random.Random, count: int | None, duration: float | None) -> list[float]:
    """Plan start offsets until ``count`` requests or ``duration`` seconds are reached, whichever is first.

    Raises ``ValueError`` without either limit, or for a ramp without an end rate.
    """
    if count is None and duration is None:
        raise ValueError("an open-loop run needs a number of requests or a duration")
    if arrivals.rate <= 0:
        raise ValueError("the rate must be above 0")
    if arrivals.kind == "ramp":
        offsets = _ramp(arrivals, rng, count, duration)
    else:
        offsets = itertools.accumulate(_gaps(arrivals, rng), initial=0.0)
    if duration is not None:
        limit = duration
        offsets = itertools.takewhile(lambda offset: offset < limit, offsets)
    return list(itertools.islice(offsets, count))


def _gaps(arrivals: Arrivals, rng: random.Random) -> Iterator[float]:
    mean = 1 / arrivals.rate
    while True:
        match arrivals.kind:
            case "poisson":
                yield rng.expovariate(arrivals.rate)
            case "gamma":
                yield rng.gammavariate(arrivals.burstiness, mean / arrivals.burstiness)
            case _:
                yield mean


def _ramp(arrivals: Arrivals, rng: random.Random, count: int | None, duration: float | None) -> Iterator[float]:
    """Poisson arrivals whose rate moves linearly to the end rate.

    The expected number of arrivals until t is ``r t + s t^2 / 2``; unit-rate Poisson arrivals are mapped through its
    inverse.
    """
    if arrivals.end_rate is None or arrivals.end_rate <= 0:
        raise ValueError("a ramp needs an end rate above 0")
    if duration is None:
        duration = 2 * (count or 0) / (arrivals.rate + arrivals.end_rate)
    slope = (arrivals.end_rate - arrivals.rate) / duration
    expected = 0.0
    while True:
        discriminant = arrivals.rate**2 + 2 * slope * expected
        if discriminant < 0:  # a falling ramp has reached zero
            return
        # The stable form of the quadratic's root; it holds for slope 0 as well.
        yield 2 * expected / (arrivals.rate + discriminant**0.5)
        expected += rng.expovariate(1.0)
