from pathlib import Path

from pagewire.bench.peers.goals import GOALS, PHASES
from pagewire.bench.peers.servers import NAMES, server_spec
from pagewire.bench.suite import PRESETS


def test_every_server_listens_on_loopback_at_a_port_of_its_own() -> None:
    specs = [server_spec(name, Path("/peers")) for name in NAMES]
    assert len({spec.port for spec in specs}) == len(NAMES)
    for spec in specs:
        assert spec.command[spec.command.index("--host") + 1] == "127.0.0.1"
        assert spec.command[spec.command.index("--port") + 1] == str(spec.port)


def test_every_slot_of_llama_cpp_has_the_length_that_the_others_allow() -> None:
    command = server_spec("llama.cpp-q8_0", Path("/peers"), slots=16).command
    assert command[command.index("--ctx-size") + 1] == str(16 * 4096)
    assert "/peers/models/SmolLM2-135M-Instruct.Q8_0.gguf" in command


def test_every_workload_is_in_one_phase_with_all_servers_its_goals_name() -> None:
    assert sorted(name for phase in PHASES for name in phase.workloads) == sorted(preset.name for preset in PRESETS)
    for goal in GOALS:
        (phase,) = (phase for phase in PHASES if goal.workload in phase.workloads)
        assert {goal.server, goal.peer} <= set(phase.servers)
