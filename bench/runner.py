"""Drives conversations at a server: in a closed loop, or in an open loop that never waits for the server."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from pagewire.bench.client import Clock, Message, Record
from pagewire.bench.workloads import Conversation

# A server that refuses at once must not be hammered at the speed of the loop.
_PAUSE_AFTER_ERROR_S = 0.1

Send = Callable[[str | list[int] | list[Message], Record], Awaitable[None]]
# Takes a conversation and when it is due; True says that every turn succeeded.
Converse = Callable[[Conversation, float], Awaitable[bool]]


class Talk:
    """Sends the turns of conversations, one after the other, and keeps a record of each."""

    def __init__(self, send: Send, *, chat: bool, think_time_s: float = 0.0, clock: Clock = time.perf_counter) -> None:
        """Send through ``send``; prompts become messages for chat."""
        self.records: list[Record] = []
        self.running = 0
        self._send = send
        self._chat = chat
        self._think_time_s = think_time_s
        self._clock = clock

    async def converse(self, conversation: Conversation, planned: float) -> bool:
        """Send all turns; the history grows by each question and its answer. A failed turn ends the conversation."""
        messages: list[Message] = []
        text = ""
        for number, turn in enumerate(conversation.turns):
            record = Record(conversation.index, number, turn.output_tokens, planned)
            if self._chat:
                messages.append({"role": "user", "content": turn.prompt})
                await self._send_one(messages, record)
                messages.append({"role": "assistant", "content": record.text})
            elif isinstance(turn.prompt, str):
                text += turn.prompt
                await self._send_one(text, record)
                text += f"{record.text} "
            else:
                await self._send_one(turn.prompt, record)
            if record.error is not None:
                return False
            if number + 1 < len(conversation.turns) and self._think_time_s:
                await asyncio.sleep(self._think_time_s)
            planned = self._clock()
        return True

    def finished(self) -> list[Record]:
        """Return the records of requests that have ended, well or not."""
        return [record for record in self.records if record.end > 0]

    async def _send_one(self, prompt: str | list[int] | list[Message], record: Record) -> None:
        self.records.append(record)
        self.running += 1
        try:
            await self._send(prompt, record)
        finally:
            self.running -= 1


async def run_closed(
    converse: Converse,
    conversations: Iterable[Conversation],
    concurrency: int,
    *,
    duration_s: float | None = None,
    clock: Clock = time.perf_counter,
) -> None:
    """Keep ``concurrency`` conversations going until there are no more, or none is begun after ``duration_s``."""
    pending = iter(conversations)
    stop_at = None if duration_s is None else clock() + duration_s

    async def worker() -> None:
        for conversation in _until(pending, stop_at, clock):
            if not await converse(conversation, clock()):
                await asyncio.sleep(_PAUSE_AFTER_ERROR_S)

    async with asyncio.TaskGroup() as workers:
        for _ in range(concurrency):
            workers.create_task(worker())


def _until(conversations: Iterator[Conversation], stop_at: float | None, clock: Clock) -> Iterator[Conversation]:
    """Yield from an iterator that several workers share, up to a moment."""
    for conversation in conversations:
        if stop_at is not None and clock() >= stop_at:
            return
        yield conversation


async def run_open(
    converse: Converse,
    arrivals: Sequence[tuple[float, Conversation]],
    *,
    max_in_flight: int | None = None,
    clock: Clock = time.perf_counter,
) -> list[float]:
    """Start each conversation at its offset (seconds from now, ascending), whatever became of the earlier ones.

    Returns by how many seconds the harness itself was late for each. With ``max_in_flight`` a conversation over the
    limit waits, and its latency counts from when it was due; that wait is not lateness.
    """
    gate = asyncio.Semaphore(max_in_flight) if max_in_flight else None
    lateness: list[float] = []
    start = clock()

    async def begin(conversation: Conversation, due: float) -> None:
        lateness.append(clock() - due)
        if gate is None:
            await converse(conversation, due)
        else:
            async with gate:
                await converse(conversation, due)

    async with asyncio.TaskGroup() as started:
        for offset, conversation in arrivals:
            wait = start + offset - clock()
            if wait > 0:
                await asyncio.sleep(wait)
            started.create_task(begin(conversation, start + offset))
    return lateness
