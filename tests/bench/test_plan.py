from pathlib import Path

import msgspec
import pytest

from pagewire.bench.plan import level_label, make_plan
from pagewire.bench.results import LoadSettings, Settings
from tests.bench.results_for_tests import SETTINGS


def settings(load: LoadSettings, **workload: object) -> Settings:
    return msgspec.structs.replace(SETTINGS, load=load, workload=msgspec.structs.replace(SETTINGS.workload, **workload))


def test_a_closed_loop_gets_enough_requests_for_its_concurrency() -> None:
    plan = make_plan(settings(LoadSettings(kind="closed", levels=[8.0])), 8.0, 0)
    assert plan.offsets is None
    assert plan.num_requests == 32


def test_a_duration_alone_has_no_number_of_requests() -> None:
    plan = make_plan(settings(LoadSettings(kind="closed", levels=[8.0], duration_s=1.0)), 8.0, 0)
    assert plan.num_requests is None
    assert next(iter(plan.conversations)).index == 0


def test_turns_count_as_requests() -> None:
    load = LoadSettings(kind="open", levels=[5.0], requests=4)
    assert make_plan(settings(load, turns=3, prompt="text"), 5.0, 0).num_requests == 12


def test_servers_get_the_same_plan_and_repeats_another() -> None:
    load = settings(LoadSettings(kind="open", levels=[5.0], requests=6))
    first, again, other = make_plan(load, 5.0, 0), make_plan(load, 5.0, 0), make_plan(load, 5.0, 1)
    assert first == again
    assert first.offsets != other.offsets
    assert first.conversations != other.conversations


def test_a_trace_is_replayed_at_its_speed_up_to_the_duration(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        "".join(f'{{"timestamp": {at}, "input_length": 5, "output_length": 2}}\n' for at in (0, 2000, 6000))
    )
    load = LoadSettings(kind="trace", levels=[2.0], duration_s=2.5)
    assert make_plan(settings(load, trace=str(trace)), 2.0, 0).offsets == [0.0, 1.0]


@pytest.mark.parametrize(
    ("load", "level", "label"),
    [
        (LoadSettings(kind="closed", levels=[], name="w1"), 4.0, "w1: concurrency 4"),
        (LoadSettings(kind="open", levels=[], arrivals="ramp", end_rate=9.0), 0.5, "0.5 to 9 req/s ramp"),
        (LoadSettings(kind="trace", levels=[]), 2.0, "trace x2"),
    ],
)
def test_levels_have_names(load: LoadSettings, level: float, label: str) -> None:
    assert level_label(load, level) == label
