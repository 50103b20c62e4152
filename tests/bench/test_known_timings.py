"""The harness against a server whose timings are known: what it reports is what the server did."""

import asyncio
import time
from itertools import pairwise
from statistics import fmean, median
from typing import Any

import msgspec
import pytest

from pagewire.bench.client import RequestSettings, Target
from pagewire.bench.experiment import run_experiment
from pagewire.bench.lengths import parse_lengths
from pagewire.bench.metrics import ServiceLevel
from pagewire.bench.progress import QuietProgress
from pagewire.bench.results import LoadSettings, Run, Settings
from pagewire.bench.stub import MODEL, StubLog, StubServer, StubSettings, serve_stub
from pagewire.bench.workloads import WorkloadSettings

# The harness and the stub share an event loop, so that both see the same scheduling noise of the machine.
TOLERANCE = 0.02
STEADY = StubSettings(ttft_s=0.3, itl_s=0.02)


def settings_of(load: LoadSettings, output: int = 12, **request: Any) -> Settings:
    endpoint = request.get("endpoint", "completions")
    prompt = "text" if endpoint == "chat" else "ids"
    workload = WorkloadSettings(parse_lengths("50"), parse_lengths(str(output)), prompt=prompt)
    return Settings(load, workload, RequestSettings(**request))


def closed(concurrency: int, requests: int, warmup: int = 0) -> LoadSettings:
    return LoadSettings(kind="closed", levels=[float(concurrency)], requests=requests, warmup=warmup)


async def measure(stub_settings: StubSettings, settings: Settings) -> tuple[Run, list[StubLog]]:
    async with serve_stub(stub_settings) as (stub, url):
        (run,) = await run_experiment([Target("stub", url, MODEL)], settings, QuietProgress())
        return run, stub.log[settings.load.warmup :]


def gaps_ms(log: list[StubLog]) -> list[float]:
    return [1000 * (after - before) for entry in log for before, after in pairwise(entry.sent)]


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
async def test_latencies_are_those_of_the_server_within_two_percent(endpoint: str) -> None:
    run, log = await measure(STEADY, settings_of(closed(4, 8, warmup=4), endpoint=endpoint))
    summary = run.summary
    assert summary.completed == len(log) == 8
    first = [1000 * (entry.sent[0] - entry.received) for entry in log]
    whole = [1000 * (entry.sent[-1] - entry.received) for entry in log]
    assert summary.ttft_ms is not None
    assert summary.itl_ms is not None
    assert summary.tpot_ms is not None
    assert summary.e2e_ms is not None
    assert summary.ttft_ms.p50 == pytest.approx(median(first), rel=TOLERANCE)
    assert summary.itl_ms.mean == pytest.approx(fmean(gaps_ms(log)), rel=TOLERANCE)
    assert summary.itl_ms.count == 8 * 11
    assert summary.tpot_ms.mean == pytest.approx(fmean(gaps_ms(log)), rel=TOLERANCE)
    assert summary.e2e_ms.p50 == pytest.approx(median(whole), rel=TOLERANCE)


async def test_rates_are_those_of_the_server_within_two_percent() -> None:
    run, log = await measure(STEADY, settings_of(closed(4, 8, warmup=4)))
    seconds = max(entry.sent[-1] for entry in log) - min(entry.received for entry in log)
    assert run.summary.output_rate == pytest.approx(8 * 12 / seconds, rel=TOLERANCE)
    assert run.summary.prompt_rate == pytest.approx(8 * 50 / seconds, rel=TOLERANCE)


async def test_a_stall_is_the_longest_gap() -> None:
    run, log = await measure(msgspec.structs.replace(STEADY, stalls={1: 0.5}), settings_of(closed(4, 4)))
    assert run.summary.itl_ms is not None
    assert run.summary.itl_ms.max == pytest.approx(max(gaps_ms(log)), rel=TOLERANCE)
    assert run.summary.itl_ms.max > 500


async def test_an_open_loop_does_not_wait_for_a_slow_server() -> None:
    load = LoadSettings(kind="open", levels=[20.0], arrivals="constant", requests=10, warmup=0)
    run, log = await measure(StubSettings(ttft_s=1.0), settings_of(load, output=1))
    arrived = [entry.received - log[0].received for entry in log]
    assert median(after - before for before, after in pairwise(arrived)) == pytest.approx(0.05, rel=0.1)
    assert run.summary.peak_running == 10
    assert [point.planned_s for point in run.points] == pytest.approx([0.05 * number for number in range(10)], abs=1e-3)


async def test_a_plain_answer_has_a_total_time_and_no_first_token() -> None:
    run, _ = await measure(STEADY, settings_of(closed(2, 2), stream=False))
    assert run.summary.ttft_ms is None
    assert run.summary.e2e_ms is not None
    assert run.summary.e2e_ms.p50 == pytest.approx(1000 * (0.3 + 11 * 0.02), rel=0.1)
    assert run.summary.output_tokens == 24


async def test_events_of_several_tokens_are_counted_by_usage() -> None:
    run, _ = await measure(StubSettings(itl_s=0.01, tokens_per_event=4), settings_of(closed(1, 2)))
    assert run.summary.output_tokens == 24
    assert run.summary.tokens_per_event == 4
    assert run.summary.miscounted == 0


async def test_without_usage_events_are_counted_and_it_is_said() -> None:
    run, _ = await measure(StubSettings(usage=False), settings_of(closed(1, 2)))
    assert run.summary.output_tokens == 24
    assert run.summary.without_usage == 2


FAULTS: dict[str, StubSettings] = {
    "http 429": StubSettings(statuses={1: 429}),
    "http 500": StubSettings(statuses={1: 500}),
    "connection lost": StubSettings(cuts=frozenset({1})),
    "error event": StubSettings(failures=frozenset({1})),
}


@pytest.mark.parametrize("kind", FAULTS)
async def test_errors_are_named_by_kind_and_the_other_requests_counted(kind: str) -> None:
    run, _ = await measure(FAULTS[kind], settings_of(closed(1, 4)))
    assert run.summary.errors == {kind: 1}
    assert run.summary.completed == 3
    assert [point.error for point in run.points] == [None, kind, None, None]


async def test_a_request_past_its_time_is_a_timeout() -> None:
    run, _ = await measure(StubSettings(ttft_s=30.0), settings_of(closed(1, 1), timeout_s=0.2))
    assert run.summary.errors == {"timeout": 1}


async def test_a_server_that_is_not_there_is_a_connect_error() -> None:
    async with serve_stub(StubSettings()) as (_, url):
        pass
    (run,) = await run_experiment([Target("gone", url, MODEL)], settings_of(closed(1, 1)), QuietProgress())
    assert run.summary.errors == {"connect": 1}


async def test_servers_take_turns_on_the_same_prompts() -> None:
    order: list[str] = []

    def watch(name: str, stub: StubServer) -> Target:
        class Log(list[StubLog]):
            def append(self, entry: StubLog) -> None:
                order.append(name)
                super().append(entry)

        stub.log = Log()
        return Target(name, urls[name], MODEL)

    async with serve_stub(StubSettings()) as (one, url_a), serve_stub(StubSettings()) as (two, url_b):
        urls = {"A": url_a, "B": url_b}
        targets = [watch("A", one), watch("B", two)]
        load = msgspec.structs.replace(closed(1, 2), repeats=2)
        runs = await run_experiment(targets, settings_of(load), QuietProgress())
        prompts = [[entry.body["prompt"] for entry in stub.log] for stub in (one, two)]
    assert "".join(order) == "AABBAABB"
    assert [(run.target, run.repeat) for run in runs] == [("A", 0), ("B", 0), ("A", 1), ("B", 1)]
    assert prompts[0] == prompts[1]
    assert prompts[0][:2] != prompts[0][2:]


async def test_warm_up_requests_are_not_counted_and_share_no_prompt() -> None:
    async with serve_stub(StubSettings()) as (stub, url):
        settings = settings_of(closed(2, 3, warmup=2))
        (run,) = await run_experiment([Target("stub", url, MODEL)], settings, QuietProgress())
    assert run.summary.requests == 3
    assert len({tuple(entry.body["prompt"]) for entry in stub.log}) == 5


async def test_goodput_follows_the_service_level() -> None:
    settings = msgspec.structs.replace(settings_of(closed(1, 4)), service_level=ServiceLevel(itl_ms=200))
    run, _ = await measure(StubSettings(itl_s=0.001, stalls={2: 0.4}), settings)
    assert run.summary.attainment == 0.75


async def test_requests_carry_what_was_asked_for() -> None:
    request = {"extra_body": {"top_k": 1, "temperature": None}, "ignore_eos": False}
    _, log = await measure(StubSettings(), settings_of(closed(1, 1), **request))
    body = log[0].body
    assert {"model": MODEL, "max_tokens": 12, "stream": True, "top_k": 1}.items() <= body.items()
    assert "temperature" not in body
    assert "ignore_eos" not in body


async def test_a_harness_that_was_held_up_says_so() -> None:
    load = LoadSettings(kind="open", levels=[100.0], arrivals="constant", requests=20, warmup=0)
    asyncio.get_running_loop().call_later(0.1, time.sleep, 0.3)
    run, _ = await measure(StubSettings(), settings_of(load, output=1))
    assert any(problem.startswith("requests were sent late") for problem in run.harness.problems)
