from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from pagewire.bench.client import RequestSettings
from pagewire.bench.report_html import render_report
from pagewire.bench.report_text import format_number, format_table, report_result
from pagewire.bench.results import RecordWriter, load_result, make_result, save_result
from tests.bench.records import make_record
from tests.bench.results_for_tests import SETTINGS, make_run, result_of

TWO_SERVERS = result_of(
    [
        make_run(target, ttft, load=load, repeat=repeat)
        for load in (1, 16)
        for repeat in (0, 1)
        for target, ttft in (("ours", 0.1), ("theirs <b>", 0.2))
    ]
)


class Page(HTMLParser):
    """Counts tags and checks that they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.open: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_html_report_is_one_well_formed_page_that_loads_nothing() -> None:
    page = Page(render_report(TWO_SERVERS))
    assert page.open == []
    assert page.links == []
    assert "script" not in page.counts
    assert page.counts["figure"] == 4 + 4 + 3 * 4


def test_names_can_not_break_the_page() -> None:
    text = render_report(TWO_SERVERS)
    assert "theirs <b>" not in text
    assert "theirs &lt;b&gt;" in text


def test_a_single_level_has_no_plot_against_load() -> None:
    assert "against load" not in render_report(result_of([make_run("A", 0.1)]))


def test_the_text_report_quotes_ratios_of_medians() -> None:
    text = report_result(TWO_SERVERS)
    assert "== ours against theirs <b>, concurrency 16" in text
    (line, *_) = [line for line in text.splitlines() if line.startswith("TTFT p50") and "better" in line]
    assert line.split()[-5:] == ["0.500", "0.500", "..", "0.500", "better"]


def test_a_spoiled_run_says_so_first_thing() -> None:
    result = result_of([make_run("A", 0.1, problems=("it used 99% of a core",))])
    warning = "THE HARNESS WAS THE BOTTLENECK, do not trust this run: it used 99% of a core"
    assert warning in report_result(result)
    assert warning in render_report(result)


def test_tables_are_aligned() -> None:
    assert format_table(("a", "b"), [("long", "1"), ("x", "22")]) == "a      b\n----  --\nlong   1\nx     22"


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (1.234, "1.23"), (123.45, "123.5"), (12345.6, "12,346")])
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert format_number(value) == text


def test_a_saved_result_is_read_back_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "result.json")
    save_result(TWO_SERVERS, path)
    assert load_result(path) == TWO_SERVERS


@pytest.mark.parametrize("content", [b"hello", b"{}", b""])
def test_other_files_are_refused_in_words(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a result of pagewire bench"):
        load_result(str(path))


def test_keys_do_not_reach_the_result() -> None:
    settings = msgspec.structs.replace(SETTINGS, request=RequestSettings(headers={"Authorization": "Bearer sk-1"}))
    command = ["bench", "run", "--api-key", "sk-1", "--header=X-Key: sk-1", "--seed", "1"]
    result = make_result([], [settings], [], command)
    assert b"sk-1" not in msgspec.json.encode(result)
    assert result.command == ["bench", "run", "--api-key", "***", "--header=***", "--seed", "1"]


def test_every_record_is_a_line_with_times_from_the_start_of_its_run(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    writer = RecordWriter(str(path))
    writer.write(make_run("A", 0.1), [make_record(100.0, [100.5]), make_record(101.0, [102.0], text="secret")])
    writer.close()
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert [(line["target"], line["planned"], line["token_times"]) for line in lines] == [
        ("A", 0, [0.5]),
        ("A", 1, [2]),
    ]
    assert "text" not in lines[1]
