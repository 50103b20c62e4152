"""The same token ids as chat and as completions, streamed and not: what each costs over the cheapest.

The server itself says which ids a conversation becomes (``POST /tokenize``); completions get exactly those. Modes take
turns within a round, in an order that rotates, and every prompt is sent once before it is measured, so that all modes
find the same prefix cache.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct

from pagewire.bench.client import Client, Message, Record, RequestFailed, RequestSettings, Target, open_session
from pagewire.bench.lengths import Lengths
from pagewire.bench.metrics import latency
from pagewire.bench.progress import Progress
from pagewire.bench.report_text import format_number, format_table
from pagewire.bench.runner import Talk, run_closed
from pagewire.bench.statistics import percentile
from pagewire.bench.workloads import Conversation, Turn, WorkloadSettings, make_workload


class ParitySettings(Struct, frozen=True):
    """How much of it: lengths in tokens, and requests per round."""

    input_tokens: int = 1000
    output_tokens: int = 100
    rounds: int = 5
    requests: int = 4
    concurrency: int = 1
    seed: int = 0


class Mode(Struct, frozen=True):
    """One way to ask the same thing."""

    name: str
    settings: RequestSettings


def parity_modes(base: RequestSettings) -> list[Mode]:
    """Return the four ways; the first is what the others are compared with."""
    return [
        Mode(
            f"{endpoint} {'stream' if stream else 'plain'}",
            msgspec.structs.replace(base, endpoint=endpoint, stream=stream),
        )
        for endpoint in ("completions", "chat")
        for stream in (False, True)
    ]


class ParityRow(Struct, frozen=True):
    """Total times of one mode in milliseconds: medians of all requests, and ratios of medians round by round."""

    mode: str
    e2e_ms: float
    ttft_ms: float | None
    ratio: float
    low: float
    high: float
    errors: int
    prompt_tokens: set[int]


Prompt = tuple[list[Message], list[int]]


async def run_parity(
    target: Target, base: RequestSettings, parity: ParitySettings, progress: Progress
) -> list[ParityRow]:
    """Measure all modes; raises ``RequestFailed`` when the server can't say what a conversation becomes."""
    prompts = await _make_prompts(target, base, parity)
    modes = parity_modes(base)
    rounds: dict[str, list[list[Record]]] = {mode.name: [] for mode in modes}
    async with AsyncExitStack() as stack:
        clients = {mode.name: await stack.enter_async_context(Client(target, mode.settings)) for mode in modes}
        for number in range(-1, parity.rounds):
            progress.say("warming up" if number < 0 else f"round {number + 1} of {parity.rounds}")
            turn = number % len(modes)
            for mode in modes[turn:] + modes[:turn]:
                records = await _run_mode(clients[mode.name], prompts, parity)
                if number >= 0:  # the round before the first fills the cache and opens the connections
                    rounds[mode.name].append(records)
    return [_row(mode.name, rounds[mode.name], rounds[modes[0].name]) for mode in modes]


async def _make_prompts(target: Target, base: RequestSettings, parity: ParitySettings) -> list[Prompt]:
    length = Lengths("fixed", parity.input_tokens)
    workload = make_workload(WorkloadSettings(length, length, prompt="text"), f"{parity.seed}/parity")
    prompts = []
    async with open_session(base) as session:
        for index in range(parity.requests):
            messages: list[Message] = [{"role": "user", "content": workload.conversation(index).turns[0].prompt}]
            body = {"model": target.model, "messages": messages, "add_generation_prompt": True}
            async with session.post(f"{target.url}/tokenize", data=msgspec.json.encode(body)) as response:
                data = await response.read()
            if response.status != 200:
                raise RequestFailed(f"http {response.status}", f"/tokenize does not take messages: {data[:200]!r}")
            answer: dict[str, Any] = msgspec.json.decode(data)
            prompts.append((messages, [int(token) for token in answer["tokens"]]))
    return prompts


async def _run_mode(client: Client, prompts: list[Prompt], parity: ParitySettings) -> list[Record]:
    chat = client.settings.endpoint == "chat"
    send: Callable[..., Awaitable[None]] = client.send

    async def send_prompt(_: Any, record: Record) -> None:
        messages, ids = prompts[record.index]
        await send(messages if chat else ids, record)

    talk = Talk(send_prompt, chat=False)
    conversations = [Conversation(index, [Turn("", parity.output_tokens)]) for index in range(len(prompts))]
    await run_closed(talk.converse, conversations, parity.concurrency)
    return talk.records


def _row(name: str, rounds: list[list[Record]], base: list[list[Record]]) -> ParityRow:
    records = [record for each in rounds for record in each]
    times = [latency(record) for record in records if record.error is None]
    firsts = [time.ttft_ms for time in times if time.ttft_ms is not None]
    ratios = sorted(
        mine / theirs for mine, theirs in zip(map(_round_time, rounds), map(_round_time, base), strict=True) if theirs
    )
    return ParityRow(
        mode=name,
        e2e_ms=median(time.e2e_ms for time in times) if times else 0.0,
        ttft_ms=median(firsts) if firsts else None,
        ratio=percentile(ratios, 50) if ratios else 0.0,
        low=ratios[0] if ratios else 0.0,
        high=ratios[-1] if ratios else 0.0,
        errors=len(records) - len(times),
        prompt_tokens={record.prompt_tokens for record in records if record.prompt_tokens is not None},
    )


def _round_time(records: list[Record]) -> float:
    times = [latency(record).e2e_ms for record in records if record.error is None]
    return median(times) if times else 0.0


def report_parity(rows: list[ParityRow]) -> str:
    """Write the table, and say it when the modes were not given the same number of tokens."""
    header = (
        "total time, same token ids",
        "ms p50",
        "TTFT ms p50",
        f"over {rows[0].mode}",
        "range of rounds",
        "errors",
    )
    table = format_table(
        header,
        [
            (
                row.mode,
                format_number(row.e2e_ms),
                format_number(row.ttft_ms),
                f"{row.ratio:.3f}",
                f"{row.low:.3f} .. {row.high:.3f}",
                str(row.errors),
            )
            for row in rows
        ],
    )
    if len({tuple(sorted(row.prompt_tokens)) for row in rows}) > 1:
        table += "\n! the server counted different numbers of prompt tokens in the modes (a doubled begin token?)"
    return table
