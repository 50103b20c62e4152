from pathlib import Path

import pytest

from pagewire.bench.client import RequestSettings, Target
from pagewire.bench.constrained import (
    RESPONSE_FORMAT,
    ConstrainedSettings,
    read_response_format,
    report_constrained,
    run_constrained,
    way_settings,
)
from pagewire.bench.progress import QuietProgress
from pagewire.bench.stub import MODEL, StubSettings, serve_stub

SIZES = ConstrainedSettings(input_tokens=20, output_tokens=5, rounds=3, requests=6, concurrency=2)


async def test_the_shares_of_constrained_requests_take_turns_with_prompts_of_their_own() -> None:
    settings = way_settings(SIZES, RequestSettings(), RESPONSE_FORMAT)
    async with serve_stub(StubSettings(itl_s=0.001)) as (stub, url):
        runs = await run_constrained(Target("server", url, MODEL), settings, QuietProgress())
    names = ["plain", "half", "constrained"]
    assert [run.target for run in runs] == [*names, "half", "constrained", "plain", "constrained", "plain", "half"]
    bodies = [entry.body for entry in stub.log]
    measured = bodies[3 * 4 :]
    bound = [sum("response_format" in body for body in measured[start : start + 6]) for start in range(0, 54, 6)]
    assert bound == [0, 3, 6, 3, 6, 0, 6, 0, 3]
    assert {body["max_tokens"] for body in measured} == {5}
    assert len({str(body["prompt"]) for body in bodies}) == len(bodies)


async def test_the_report_compares_with_free_requests() -> None:
    async with serve_stub(StubSettings(itl_s=0.002)) as (_, url):
        settings = way_settings(SIZES, RequestSettings(), RESPONSE_FORMAT)
        runs = await run_constrained(Target("server", url, MODEL), settings, QuietProgress())
    text = report_constrained(runs)
    assert "half/plain" in text
    assert "constrained/plain" in text
    assert "ITL p50" in text


def test_a_response_format_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "format.json"
    file.write_text('{"type": "json_object"}')
    assert read_response_format(str(file)) == {"type": "json_object"}
    for wrong in ("[", "[]", "{}"):
        file.write_text(wrong)
        with pytest.raises(ValueError, match=r"format\.json is not a response_format"):
            read_response_format(str(file))
