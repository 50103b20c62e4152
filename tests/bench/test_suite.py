import pytest

from pagewire.bench.client import RequestSettings, Target
from pagewire.bench.progress import QuietProgress
from pagewire.bench.stub import MODEL, StubSettings, serve_stub
from pagewire.bench.suite import choose_presets, preset_settings, report_suite, run_suite


def test_presets_are_chosen_by_the_beginning_of_their_names() -> None:
    assert [preset.name for preset in choose_presets(["w2", "w4"])] == ["w2-32", "w2-64", "w4"]
    assert len(choose_presets([])) == 6
    with pytest.raises(ValueError, match="no workload 'w9'; there are w1, w2-32"):
        choose_presets(["w9"])


async def test_the_table_has_every_servers_median_and_the_ratio() -> None:
    presets = choose_presets(["w3"])
    settings = [preset_settings(preset, RequestSettings(), 1, 0, (1000, 2000)) for preset in presets]
    async with (
        serve_stub(StubSettings(ttft_s=0.02)) as (stub, ours),
        serve_stub(StubSettings(ttft_s=0.1)) as (_, peer),
    ):
        targets = [Target("ours", ours, MODEL), Target("peer", peer, MODEL)]
        runs = await run_suite(targets, settings, QuietProgress())
    table = report_suite(presets, targets, runs).splitlines()
    assert table[0].split()[-3:] == ["ours", "peer", "ours/peer"]
    assert table[2].startswith("w3 long prompt")
    assert float(table[2].split()[-1]) < 1
    assert {len(entry.body["prompt"]) for entry in stub.log} == {2048}
