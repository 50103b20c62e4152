from pagewire.bench.client import RequestSettings, Target
from pagewire.bench.parity import ParitySettings, report_parity, run_parity
from pagewire.bench.progress import QuietProgress
from pagewire.bench.stub import MODEL, StubSettings, serve_stub


async def test_every_mode_asks_for_the_same_tokens() -> None:
    parity = ParitySettings(input_tokens=30, output_tokens=5, rounds=2, requests=2)
    async with serve_stub(StubSettings(itl_s=0.002)) as (stub, url):
        rows = await run_parity(Target("stub", url, MODEL), RequestSettings(), parity, QuietProgress())
    assert [row.mode for row in rows] == ["completions plain", "completions stream", "chat plain", "chat stream"]
    assert [row.errors for row in rows] == [0, 0, 0, 0]
    assert {tuple(row.prompt_tokens) for row in rows} == {(30,)}
    assert rows[0].ratio == 1
    assert len(stub.log) == 4 * 2 * 3
    assert {entry.body["max_tokens"] for entry in stub.log} == {5}
    assert "! the server counted" not in report_parity(rows)
