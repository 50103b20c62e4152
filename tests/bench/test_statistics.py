import pytest

from pagewire.bench.statistics import curve, distribution, percentile, spread


def test_percentiles_lie_between_neighbours() -> None:
    assert percentile([0.0, 10.0, 20.0], 50) == 10
    assert percentile([0.0, 10.0], 75) == 7.5
    assert percentile([3.0], 99) == 3


def test_a_distribution_of_nothing_is_none() -> None:
    assert distribution([]) is None
    assert curve([]) == []


def test_a_distribution_does_not_depend_on_order() -> None:
    assert distribution([3.0, 1.0, 2.0]) == distribution([1.0, 2.0, 3.0])


def test_the_curve_runs_from_the_lowest_to_the_highest() -> None:
    found = curve([float(value) for value in range(201)])
    assert (found[0], found[50], found[100], len(found)) == (0, 100, 200, 101)


def test_the_interval_is_students_t() -> None:
    over = spread([9.0, 10.0, 11.0])
    assert (over.median, over.low, over.high) == pytest.approx((10, 10 - 4.303 / 3**0.5, 10 + 4.303 / 3**0.5))


def test_two_repeats_give_no_interval() -> None:
    assert spread([1.0, 2.0]).low is None
