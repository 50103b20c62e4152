import msgspec

from pagewire.bench.peers.table import figures_table, goals_table, warnings_list
from pagewire.bench.results import Run
from tests.bench.results_for_tests import make_run


def run_of(workload: str, server: str, ttft_s: float, repeat: int = 0, problems: tuple[str, ...] = ()) -> Run:
    run = make_run(server, ttft_s, repeat=repeat, problems=problems)
    return msgspec.structs.replace(run, label=f"{workload}: concurrency 1")


def test_figures_are_medians_with_their_range_for_every_server_that_ran() -> None:
    runs = [run_of("w3", "pagewire", seconds) for seconds in (0.1, 0.3, 0.2)] + [run_of("w3", "vllm", 0.4)]
    assert figures_table(runs).splitlines() == [
        "| workload | pagewire | vllm |",
        "| --- | ---: | ---: |",
        "| W3 long prompt, one at a time, TTFT p50 (ms) | 200.0 (100.0 to 300.0) | 400.0 |",
    ]


def test_a_server_that_did_not_run_a_workload_has_an_empty_cell() -> None:
    runs = [run_of("w1", "llama.cpp-bf16", 0.1), run_of("w3", "pagewire", 0.2)]
    assert figures_table(runs).splitlines()[-1] == "| W3 long prompt, one at a time, TTFT p50 (ms) |  | 200.0 |"


def test_a_goal_is_reached_by_the_ratio_of_medians_in_the_direction_of_the_figure() -> None:
    peer = [run_of("w3", "vllm", 0.4), run_of("w3", "vllm", 0.4, 1)]
    ours = [run_of("w3", "pagewire", 0.2), run_of("w3", "pagewire", 0.28, 1)]
    int8 = [run_of("w3", "pagewire-int8", 0.3), run_of("w3", "pagewire-int8", 0.3, 1)]
    rows = goals_table([*peer, *ours, *int8]).splitlines()[2:]
    assert rows == [
        "| W3 TTFT p50: pagewire / vllm | 0.60 | 0.50 to 0.70 | ≤ 0.75 | yes |",
        "| W3 TTFT p50: pagewire-int8 / vllm | 0.75 | 0.75 to 0.75 | ≤ 0.5 | **no** |",
    ]


def test_warnings_are_listed_once() -> None:
    runs = [run_of("w3", "vllm", 0.1, repeat, ("it was late",)) for repeat in range(2)]
    assert warnings_list(runs).count("it was late") == 1
    assert warnings_list([run_of("w3", "vllm", 0.1)]) == "- none"
