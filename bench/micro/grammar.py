"""What grammars cost: an engine without sockets, all of its rows free or some of them bound to a schema."""

import argparse
import json
import time
from dataclasses import dataclass

import torch

from pagewire.bench.constrained import SCHEMA
from pagewire.engine.build import build_engine
from pagewire.engine.config import EngineConfig
from pagewire.engine.core import EngineCore
from pagewire.protocol.messages import Generate, Sampling

WHITESPACE = {"x-guidance": {"whitespace_pattern": "[ \\n]{1,20}"}}
GRAMMAR = json.dumps({"grammars": [{"json_schema": SCHEMA | WHITESPACE}]})


@dataclass(frozen=True, slots=True)
class Measured:
    """Median seconds of a decode step, and how long the first token took to come."""

    step_s: float
    first_s: float


def measure(core: EngineCore, rows: int, bound: int, steps: int, temperature: float) -> Measured:
    """Decode ``rows`` sequences at once, the first ``bound`` of them with a grammar."""
    started = time.perf_counter()
    for rid in range(rows):
        # With ignore_eos a free row goes on for as long as a bound one.
        sampling = Sampling(steps + 8, temperature=temperature, seed=rid, ignore_eos=True)
        if rid < bound:
            sampling = Sampling(steps + 8, temperature=temperature, seed=rid, ignore_eos=True, grammar=GRAMMAR)
        core.submit((b"bench", rid), Generate(rid, tuple(range(100 + rid, 132 + rid)), sampling))
    while core.load().running < rows:
        core.step()
    first = time.perf_counter() - started
    times = []
    for _ in range(steps):
        before = time.perf_counter()
        core.step()
        times.append(time.perf_counter() - before)
    core.abort_all(b"bench")
    while core.has_work:
        core.step()
    return Measured(sorted(times)[len(times) // 2], first)


def main() -> None:
    """Measure each share of bound rows in turn, several times, and print the best of each."""
    parser = argparse.ArgumentParser(prog="python -m pagewire.bench.micro.grammar", description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.0)
    arguments = parser.parse_args()
    core = build_engine(EngineConfig(model=arguments.model, max_num_seqs=arguments.rows, max_model_len=1024)).core
    shares = (0, arguments.rows // 2, arguments.rows)
    best: dict[int, float] = {}
    with torch.inference_mode():
        for _ in range(arguments.rounds):
            for bound in shares:
                step_s = measure(core, arguments.rows, bound, arguments.steps, arguments.temperature).step_s
                best[bound] = min(step_s, best.get(bound, step_s))
    for bound in shares:
        loss = 1 - best[0] / best[bound]
        print(
            f"{bound:3} of {arguments.rows} rows bound: {best[bound] * 1e3:7.2f} ms a step, {loss:6.1%} less throughput"
        )


if __name__ == "__main__":
    main()
