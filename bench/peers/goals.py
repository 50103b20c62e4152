"""What is compared: which servers run which workloads, and what Pagewire is to reach against them."""

from msgspec import Struct


class Phase(Struct, frozen=True):
    """Workloads that are measured on the same running servers. ``slots``: as many as the workloads have streams."""

    workloads: tuple[str, ...]
    servers: tuple[str, ...]
    slots: int


class Goal(Struct, frozen=True):
    """A ratio of medians to reach: at least ``ratio`` for a figure that is better higher, else at most."""

    workload: str
    figure: str
    server: str
    peer: str
    ratio: float


_OURS = ("pagewire", "pagewire-int8")
_VLLM = ("vllm", "vllm-all-cores")

PHASES = (
    Phase(("w1",), (*_OURS, *_VLLM, "llama.cpp-bf16", "llama.cpp-q8_0", "llama.cpp-q4_0"), slots=1),
    Phase(("w2-32", "w2-64", "w3", "w4"), (*_OURS, *_VLLM, "llama.cpp-bf16"), slots=64),
    Phase(("w5",), (*_OURS, *_VLLM), slots=64),
)


def _goals(workload: str, figure: str, plain: float, int8: float) -> tuple[Goal, ...]:
    """Goals against vLLM, in each of the ways it is started."""
    wanted = zip(_OURS, (plain, int8), strict=True)
    return tuple(Goal(workload, figure, ours, peer, ratio) for ours, ratio in wanted for peer in _VLLM)


GOALS = (
    Goal("w1", "output tokens/s", "pagewire", "llama.cpp-bf16", 1.25),
    Goal("w1", "output tokens/s", "pagewire-int8", "llama.cpp-q4_0", 1.25),
    *_goals("w2-32", "output tokens/s", 1.5, 2.2),
    *_goals("w2-64", "output tokens/s", 1.5, 2.2),
    *_goals("w2-32", "ITL p99", 0.25, 0.25),
    *_goals("w3", "TTFT p50", 0.75, 0.5),
    *_goals("w4", "total time", 0.65, 0.45),
    *_goals("w5", "TTFT p50", 0.75, 0.5),
    *_goals("w5", "ITL p50", 0.75, 0.5),
    *_goals("w5", "ITL p99", 0.5, 0.4),
)
