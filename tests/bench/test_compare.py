import msgspec
import pytest

from pagewire.bench.compare import compare_results
from pagewire.bench.figures import compare_figure, figure_named
from pagewire.bench.lengths import parse_lengths
from tests.bench.results_for_tests import SETTINGS, make_run, result_of


def runs(target: str, *ttfts: float) -> list:
    return [make_run(target, ttft, repeat=repeat) for repeat, ttft in enumerate(ttfts)]


def test_a_ratio_is_of_medians_and_its_range_of_pairs() -> None:
    ratio = compare_figure(figure_named("TTFT p50"), runs("A", 0.1, 0.2, 0.4), runs("B", 0.05, 0.1, 0.1))
    assert ratio is not None
    assert (ratio.ratio, ratio.low, ratio.high) == pytest.approx((0.5, 0.25, 0.5))
    assert ratio.verdict == "better"


@pytest.mark.parametrize(
    ("other", "verdict"), [((0.2, 0.2), "worse"), ((0.05, 0.2), ""), ((0.101, 0.101), ""), ((0.2,), "")]
)
def test_a_verdict_needs_pairs_that_agree_by_more_than_noise(other: tuple[float, ...], verdict: str) -> None:
    ratio = compare_figure(figure_named("TTFT p50"), runs("A", 0.1, 0.1), runs("B", *other))
    assert ratio is not None
    assert ratio.verdict == verdict


def test_a_figure_that_a_side_lacks_is_not_compared() -> None:
    assert compare_figure(figure_named("goodput"), runs("A", 0.1), runs("B", 0.1)) is None


def test_results_are_compared_at_the_levels_they_share() -> None:
    before = result_of([make_run("A", 0.1), make_run("A", 0.1, load=16)])
    after = result_of([make_run("A", 0.2), make_run("A", 0.2, load=32)])
    text = compare_results(before, after, ("old", "new"))
    assert "== new against old, concurrency 1\n" in text
    assert "concurrency 16" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("TTFT p50")]
    assert line.split()[3:] == ["100.0", "200.0", "2.000", "2.000", "..", "2.000"]


def test_what_makes_a_comparison_unequal_is_said() -> None:
    before, after = result_of(runs("A", 0.1)), result_of(runs("A", 0.1))
    workload = msgspec.structs.replace(SETTINGS.workload, input=parse_lengths("99"))
    after = msgspec.structs.replace(after, settings=[msgspec.structs.replace(SETTINGS, workload=workload)])
    assert "! the workloads differ" in compare_results(before, after, ("A", "B"))


def test_results_without_a_common_level_are_refused() -> None:
    with pytest.raises(ValueError, match="no level of load in common"):
        compare_results(result_of([make_run("A", 0.1)]), result_of([make_run("A", 0.1, load=2)]), ("A", "B"))
