import pytest

from pagewire.bench.metrics import (
    ServiceLevel,
    latency,
    parse_seconds,
    parse_service_level,
    running_changes,
    summarize,
    timeline,
)
from tests.bench.records import make_record


def test_latencies_count_from_when_the_request_was_due() -> None:
    times = latency(make_record(10.0, [10.5, 10.6, 10.8], sent=10.3, end=10.9))
    assert times.ttft_ms == pytest.approx(500)
    assert times.gaps_ms == pytest.approx([100, 200])
    assert times.tpot_ms == pytest.approx(150)
    assert times.e2e_ms == pytest.approx(900)


def test_time_per_token_uses_the_servers_count_where_an_event_carries_several() -> None:
    assert latency(make_record(0.0, [1.0, 1.3], output_tokens=7)).tpot_ms == pytest.approx(50)


def test_rates_are_over_the_time_from_the_first_due_to_the_last_end() -> None:
    summary = summarize([make_record(0.0, [1.0, 2.0]), make_record(1.0, [3.0, 4.0])])
    assert summary.duration_s == 4
    assert (summary.request_rate, summary.output_rate, summary.prompt_rate) == (0.5, 1.0, 5.0)
    assert (summary.peak_running, summary.mean_running) == (2, 1.25)


def test_goodput_counts_requests_that_keep_every_limit() -> None:
    records = [make_record(0.0, [0.1, 0.2]), make_record(0.0, [0.6, 0.7]), make_record(0.0, [0.1, 1.0])]
    records.append(make_record(0.0, [], error="http 500", end=1.0))
    summary = summarize(records, ServiceLevel(ttft_ms=500, itl_ms=500))
    assert summary.goodput == 1.0
    assert summary.attainment == 0.25


def test_errors_are_counted_by_kind_and_kept_out_of_latencies() -> None:
    failed = [make_record(0.0, [9.0], error="timeout"), make_record(0.0, [], error="http 429", error_text="busy")]
    summary = summarize([make_record(0.0, [1.0]), *failed, *failed])
    assert summary.errors == {"timeout": 2, "http 429": 2}
    assert summary.error_examples["http 429"] == "busy"
    assert summary.ttft_ms is not None
    assert summary.ttft_ms.count == summary.completed == 1


def test_answers_that_do_not_add_up_are_counted() -> None:
    records = [
        make_record(0.0, [1.0, 2.0], output_tokens=1),
        make_record(0.0, [1.0], asked_tokens=5),
        make_record(0.0, [1.0], has_usage=False),
    ]
    summary = summarize(records)
    assert (summary.miscounted, summary.short, summary.without_usage) == (1, 2, 1)
    assert summarize(records, fixed_length=False).short == 0


def test_running_requests_rise_and_fall() -> None:
    records = [make_record(0.0, [3.0]), make_record(1.0, [2.0])]
    assert running_changes(records) == [(0.0, 1), (1.0, 2), (2.0, 1), (3.0, 0)]


def test_the_timeline_accounts_for_every_token_and_second() -> None:
    records = [make_record(0.0, [1.0, 5.0, 12.0]), make_record(3.0, [4.0, 9.0])]
    line = timeline(records)
    assert sum(line.output_rate) * line.bin_s == pytest.approx(5)
    assert sum(line.running) * line.bin_s == pytest.approx(12 + 6)
    assert max(line.running) == pytest.approx(2)


@pytest.mark.parametrize(("text", "expected"), [("200ms", 0.2), ("2s", 2), ("1.5m", 90), ("3", 3)])
def test_times_have_units(text: str, expected: float) -> None:
    assert parse_seconds(text) == pytest.approx(expected)


def test_a_service_level_is_read_from_text() -> None:
    assert parse_service_level("ttft=500ms, e2e=2s") == ServiceLevel(ttft_ms=500, e2e_ms=2000)


@pytest.mark.parametrize("text", ["ttft", "ttft=fast", "speed=1s", "ttft=1x", "ttft=1sm"])
def test_other_service_levels_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_service_level(text)
