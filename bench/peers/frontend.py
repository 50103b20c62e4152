"""What a streamed token costs vLLM's API server, and Pagewire's frontend below it.

vLLM's engine is a process of its own; with a model of one small layer it has little to do. On a machine with few cores
engine and client compete with the API server for them, and wall-clock rates say little; its own CPU time per token is
the figure that holds: a core divided by it is what one process passes.
"""

import argparse
import asyncio
import json
import shutil
import sys
import time
from pathlib import Path

import msgspec

from pagewire.bench.client import Client, RequestSettings
from pagewire.bench.experiment import run_once, warm_up
from pagewire.bench.lengths import Lengths
from pagewire.bench.micro.frontend import cpu_seconds
from pagewire.bench.micro.run import report_frontend
from pagewire.bench.options import find_targets
from pagewire.bench.peers.processes import ServerFailed, ServerProcess, ServerSpec, running
from pagewire.bench.peers.servers import model_directory, server_spec
from pagewire.bench.progress import QuietProgress
from pagewire.bench.report_text import format_number, format_table
from pagewire.bench.results import LoadSettings, Settings
from pagewire.bench.workloads import WorkloadSettings

STREAMS, TOKENS, PROMPT_TOKENS = 64, 256, 16
_SMALL = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
}
_HEADER = ("vLLM's API server, chat", "tokens/s", "tokens/event", "CPU", "us/token", "passes, tokens/s", "errors")


def main() -> int:
    """Print both tables; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, default=Path("build/peers"), help="where they are; default build/peers")
    parser.add_argument("--logs", type=Path, default=Path("build"), help="where the server's log goes; default build")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="default 3")
    parser.add_argument("--requests", type=int, default=256, metavar="N", help="per repeat; default 256")
    args = parser.parse_args()
    args.logs.mkdir(parents=True, exist_ok=True)
    spec = _small_vllm(args.peers.resolve())
    try:
        with running([spec], args.logs) as (server,):
            rows = asyncio.run(_measure(server, args.repeats, args.requests))
    except ServerFailed as error:
        print(f"frontend: {error}", file=sys.stderr)
        return 1
    print(format_table(_HEADER, rows), flush=True)
    print("\n" + asyncio.run(report_frontend()))
    return 0


def _small_vllm(peers: Path) -> ServerSpec:
    """Make a model of random weights, with the tokenizer of the real one, and say how to serve it."""
    source, small = model_directory(peers), peers / "models" / "small"
    small.mkdir(exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, small)
    config = json.loads((source / "config.json").read_text("utf-8"))
    (small / "config.json").write_text(json.dumps(config | _SMALL), encoding="utf-8")
    spec = server_spec("vllm", peers)
    command = [str(small) if part == str(source) else part for part in spec.command]
    return msgspec.structs.replace(spec, name="vllm-small", command=(*command, "--load-format", "dummy"))


async def _measure(server: ServerProcess, repeats: int, requests: int) -> list[tuple[str, ...]]:
    settings = Settings(
        LoadSettings(kind="closed", levels=[float(STREAMS)], requests=requests, warmup=STREAMS),
        WorkloadSettings(Lengths("fixed", PROMPT_TOKENS), Lengths("fixed", TOKENS), prompt="text"),
        RequestSettings(endpoint="chat"),
    )
    (target,) = await find_targets([f"vllm={server.spec.url}"], None, settings.request)
    async with Client(target, settings.request) as client:
        await warm_up(client, settings, QuietProgress())
        return [await _measure_once(client, settings, repeat, server.pid) for repeat in range(repeats)]


async def _measure_once(client: Client, settings: Settings, repeat: int, pid: int) -> tuple[str, ...]:
    """Measure one repeat; ``pid`` is the API server's."""
    before, started = cpu_seconds(pid), time.perf_counter()
    run, _ = await run_once(client, settings, float(STREAMS), repeat, QuietProgress())
    cpu, wall = cpu_seconds(pid) - before, time.perf_counter() - started
    summary = run.summary
    tokens = max(1, summary.output_tokens)
    return (
        f"{STREAMS} streams of {TOKENS} #{repeat + 1}",
        format_number(summary.output_rate),
        f"{summary.tokens_per_event:.2f}",
        f"{cpu / wall:.0%}",
        format_number(1e6 * cpu / tokens),
        format_number(tokens / cpu),
        str(summary.requests - summary.completed),
    )


if __name__ == "__main__":
    sys.exit(main())
