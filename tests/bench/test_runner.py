import asyncio
from typing import Any

import pytest

from pagewire.bench.client import Record
from pagewire.bench.runner import Talk, run_closed, run_open
from pagewire.bench.workloads import Conversation, Turn
from tests.bench.virtual_time import run_virtually


class Server:
    """Answers after a fixed time, or fails, on the loop's own clock."""

    def __init__(self, service_s: float, *, fails: bool = False) -> None:
        self.service_s = service_s
        self.fails = fails
        self.prompts: list[Any] = []
        self.most = self.running = 0

    async def send(self, prompt: Any, record: Record) -> None:
        clock = asyncio.get_running_loop().time
        self.prompts.append(list(prompt) if isinstance(prompt, list) else prompt)
        self.running += 1
        self.most = max(self.most, self.running)
        record.sent = clock()
        await asyncio.sleep(self.service_s)
        record.end = clock()
        record.text = f"answer {len(self.prompts)}"
        record.error = "http 500" if self.fails else None
        self.running -= 1


def conversations(count: int, turns: int = 1) -> list[Conversation]:
    return [Conversation(index, [Turn(f"q{turn}", 4) for turn in range(turns)]) for index in range(count)]


async def drive_open(server: Server, offsets: list[float], **options: Any) -> tuple[list[Record], list[float]]:
    clock = asyncio.get_running_loop().time
    talk = Talk(server.send, chat=False, clock=clock)
    arrivals = list(zip(offsets, conversations(len(offsets)), strict=True))
    lateness = await run_open(talk.converse, arrivals, clock=clock, **options)
    return talk.records, lateness


async def drive_closed(server: Server, work: list[Conversation], concurrency: int, **options: Any) -> list[Record]:
    clock = asyncio.get_running_loop().time
    talk = Talk(server.send, chat=options.pop("chat", False), clock=clock, think_time_s=options.pop("think", 0.0))
    await run_closed(talk.converse, work, concurrency, clock=clock, **options)
    return talk.records


def test_an_open_loop_starts_on_time_whatever_the_server_does() -> None:
    server = Server(service_s=1000)
    records, lateness = run_virtually(drive_open(server, [0.0, 1.0, 1.5, 9.0]))
    assert [record.sent - records[0].sent for record in records] == pytest.approx([0.0, 1.0, 1.5, 9.0])
    assert max(lateness) == pytest.approx(0, abs=1e-6)
    assert server.most == 4


def test_a_request_held_back_by_the_limit_counts_from_when_it_was_due() -> None:
    records, lateness = run_virtually(drive_open(Server(service_s=10), [0.0, 1.0, 2.0], max_in_flight=1))
    assert [record.end - record.planned for record in records] == pytest.approx([10, 19, 28])
    assert max(lateness) == pytest.approx(0, abs=1e-6)


def test_a_closed_loop_keeps_its_concurrency() -> None:
    server = Server(service_s=2)
    records = run_virtually(drive_closed(server, conversations(12), 4))
    assert server.most == 4
    assert max(record.end for record in records) == pytest.approx(6)


def test_a_closed_loop_begins_nothing_after_its_duration() -> None:
    records = run_virtually(drive_closed(Server(service_s=2), conversations(100), 3, duration_s=5))
    assert len(records) == 9
    assert max(record.end for record in records) == pytest.approx(6)


def test_errors_slow_a_closed_loop_down() -> None:
    records = run_virtually(drive_closed(Server(service_s=0, fails=True), conversations(11), 1))
    assert records[-1].sent - records[0].sent == pytest.approx(1)


def test_a_chat_history_grows_by_question_and_answer() -> None:
    server = Server(service_s=1)
    records = run_virtually(drive_closed(server, conversations(1, turns=3), 1, chat=True, think=5.0))
    said = [[(message["role"], message["content"]) for message in prompt] for prompt in server.prompts]
    assert said[2] == [
        ("user", "q0"),
        ("assistant", "answer 1"),
        ("user", "q1"),
        ("assistant", "answer 2"),
        ("user", "q2"),
    ]
    assert [record.turn for record in records] == [0, 1, 2]
    assert [record.planned - records[0].planned for record in records] == pytest.approx([0, 6, 12])


def test_a_completions_history_is_one_text() -> None:
    server = Server(service_s=1)
    run_virtually(drive_closed(server, conversations(1, turns=2), 1))
    assert server.prompts == ["q0", "q0answer 1 q1"]


def test_a_failed_turn_ends_its_conversation() -> None:
    records = run_virtually(drive_closed(Server(service_s=1, fails=True), conversations(2, turns=3), 1))
    assert [(record.index, record.turn) for record in records] == [(0, 0), (1, 0)]
