import random
from itertools import pairwise
from statistics import fmean, stdev

import pytest

from pagewire.bench.arrivals import Arrivals, plan_arrivals


def plan(arrivals: Arrivals, count: int | None = None, duration: float | None = None) -> list[float]:
    return plan_arrivals(arrivals, random.Random(1), count, duration)


def gaps(offsets: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(offsets)]


def test_constant_arrivals_are_evenly_spaced_from_zero() -> None:
    assert plan(Arrivals("constant", 4.0), count=4) == pytest.approx([0.0, 0.25, 0.5, 0.75])


def test_poisson_arrivals_have_the_rate_and_the_spread_of_an_exponential() -> None:
    found = gaps(plan(Arrivals("poisson", 10.0), count=20_000))
    assert fmean(found) == pytest.approx(0.1, rel=0.03)
    assert stdev(found) == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("burstiness", [0.25, 4.0])
def test_gamma_gaps_vary_by_the_root_of_the_burstiness(burstiness: float) -> None:
    found = gaps(plan(Arrivals("gamma", 10.0, burstiness), count=20_000))
    assert fmean(found) == pytest.approx(0.1, rel=0.05)
    assert stdev(found) / fmean(found) == pytest.approx(burstiness**-0.5, rel=0.05)


def test_a_ramp_moves_from_its_rate_to_its_end_rate() -> None:
    offsets = plan(Arrivals("ramp", 10.0, end_rate=110.0), duration=100.0)
    first, last = sum(offset < 10 for offset in offsets), sum(offset >= 90 for offset in offsets)
    assert first == pytest.approx(150, rel=0.25)
    assert last == pytest.approx(1050, rel=0.1)


def test_a_ramp_of_a_number_of_requests_ends_near_its_end_rate() -> None:
    offsets = plan(Arrivals("ramp", 10.0, end_rate=1.0), count=550)
    assert len(offsets) == 550
    assert offsets[-1] == pytest.approx(100, rel=0.15)


def test_a_duration_cuts_the_plan() -> None:
    assert max(plan(Arrivals("constant", 10.0), duration=2.0)) < 2.0


def test_the_same_seed_plans_the_same_arrivals() -> None:
    assert plan(Arrivals("poisson", 3.0), count=50) == plan(Arrivals("poisson", 3.0), count=50)


def test_a_plan_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="a number of requests or a duration"):
        plan(Arrivals("poisson", 1.0))
