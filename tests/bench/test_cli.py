import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagewire.bench.cli import main
from pagewire.bench.options import split_target
from pagewire.bench.results import load_result
from pagewire.bench.stub import StubSettings, serve_stub


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A stub in a thread of its own: the command line runs its own event loop."""
    started, stop = threading.Event(), asyncio.Event()
    found: list[str] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with serve_stub(StubSettings(ttft_s=0.01, itl_s=0.001)) as (_, address):
            found.append(address)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    started.wait(10)
    yield found[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)


def test_run_prints_figures_and_writes_its_files(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, page, records = (str(tmp_path / name) for name in ("r.json", "r.html", "r.jsonl"))
    load = ["--concurrency", "1,2", "--requests", "4", "--input-tokens", "8", "--output-tokens", "3"]
    status = main(["run", f"{url}/v1", *load, "-o", result, "--html", page, "--records", records])
    assert status == 0
    assert "== server, concurrency 2" in capsys.readouterr().out
    assert [run.label for run in load_result(result).runs] == ["concurrency 1", "concurrency 2"]
    assert Path(page).read_text(encoding="utf-8").startswith("<!doctype html>")
    assert len(Path(records).read_bytes().splitlines()) == 8


def test_compare_and_report_read_what_run_wrote(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, page = (str(tmp_path / name) for name in ("a.json", "b.json", "a.html"))
    for path in (first, second):
        main(["run", f"x={url}", "--requests", "2", "--output-tokens", "2", "-q", "--rate", "50", "-o", path])
    assert main(["report", first, "-o", page]) == 0
    capsys.readouterr()
    assert main(["compare", first, second]) == 0
    assert "== b against a, 50 req/s poisson" in capsys.readouterr().out


def test_constrained_prints_ratios_and_writes_its_result(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--rounds", "1", "--requests", "4", "--concurrency", "2", "--output-tokens", "4"]
    assert main(["constrained", url, *sizes, "-q", "-o", str(tmp_path / "result.json")]) == 0
    assert "constrained/plain" in capsys.readouterr().out
    assert [run.target for run in load_result(str(tmp_path / "result.json")).runs] == ["plain", "half", "constrained"]


def test_sweep_says_the_highest_load(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--slo", "e2e=10s", "--limit", "4", "--over", "concurrency", "--requests", "4", "--output-tokens", "2"]
    assert main(["sweep", url, *arguments, "-q"]) == 0
    assert "highest load that holds it: 4 at once" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--endpoint", "chat", "--prompt", "ids"], "chat takes no token ids"),
        (["run", "--arrivals", "ramp", "--rate", "1"], "a ramp needs --end-rate"),
        (["run", "--trace-speed", "2"], "--trace-speed needs --trace"),
        (["sweep"], "a sweep needs a service level"),
        (["suite", "--only", "w9"], "no workload 'w9'"),
        (["compare", "nothing.json", "nothing.json"], "is not a result"),
        (["run", "127.0.0.1:1", "-q"], "Cannot connect"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("value", ["0", "x", "1.5", "-2"])
def test_a_wrong_value_names_its_option(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--concurrency", value])
    assert "argument --concurrency" in capsys.readouterr().err


def test_targets_have_names_and_urls_without_v1() -> None:
    assert split_target("vllm=http://h:1/v1/", "A") == ("vllm", "http://h:1")
    assert split_target("h:1", "A") == ("A", "http://h:1")
    assert split_target("http://h/?x=1", "A") == ("A", "http://h/?x=1")
