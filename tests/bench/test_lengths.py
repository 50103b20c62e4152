import random
from statistics import fmean, median

import pytest

from pagewire.bench.lengths import parse_lengths


def draws(text: str) -> list[int]:
    lengths, rng = parse_lengths(text), random.Random(1)
    return [lengths.draw(rng) for _ in range(4000)]


def test_fixed_lengths_do_not_vary() -> None:
    assert set(draws("128")) == {128}


def test_uniform_lengths_reach_both_ends() -> None:
    assert set(draws("uniform:3:6")) == {3, 4, 5, 6}


def test_normal_lengths_have_their_mean_and_stay_above_zero() -> None:
    assert fmean(draws("normal:200:20")) == pytest.approx(200, rel=0.02)
    assert min(draws("normal:2:50")) == 1


def test_lognormal_lengths_have_their_median() -> None:
    assert median(draws("lognormal:300:0.8")) == pytest.approx(300, rel=0.08)


@pytest.mark.parametrize("text", ["", "0", "x", "uniform:5", "uniform:9:3", "normal:1:2:3", "zipf:1:2"])
def test_anything_else_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="is not a length; expected N, uniform"):
        parse_lengths(text)
