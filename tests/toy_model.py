"""A model small enough to check every schedule: its next token is a hash of all KV entries it finds.

An entry depends on its token and on the entry before it, as the KV of a transformer depends on the whole prefix. The
device runs its work in order but as late as it can, so a block read or written at the wrong time, or by the wrong
request, shows up as a wrong token.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagewire.engine.plan import Plan, Row
from pagewire.engine.request import Request
from pagewire.engine.scheduler import Scheduler

VOCAB_SIZE = 50
EOS = 0
POISON = -1  # the token sampled from KV that nobody has written

Entry = int | None


def entry_of(previous: Entry, token: int) -> int:
    return hash((-2 if previous is None else previous, token))


def next_token(entries: Sequence[Entry]) -> int:
    return POISON if None in entries else hash(tuple(entries)) % VOCAB_SIZE


def expected_output(prompt: Sequence[int], max_tokens: int) -> list[int]:
    """The output computed directly, without blocks, chunks or batches."""
    entries: list[Entry] = []
    output: list[int] = []
    for token in prompt:
        entries.append(entry_of(entries[-1] if entries else 0, token))
    while len(output) < max_tokens and EOS not in output:
        output.append(next_token(entries))
        entries.append(entry_of(entries[-1], output[-1]))
    return output


@dataclass
class Step:
    """A step given to the device; the lists, by row, are filled when the device gets there."""

    rows: tuple[Row, ...]
    entries: list[list[Entry]]
    tokens: list[int | None]
    ticket: int = 0


class ToyDevice:
    """Runs closures in the order of their arrival, and only when someone waits for a result."""

    def __init__(self, num_blocks: int, block_size: int, num_slots: int) -> None:
        self._block_size = block_size
        self._kv: list[list[Entry]] = [[None] * block_size for _ in range(num_blocks)]
        self._last_tokens = [POISON] * num_slots
        self._queue: deque[Callable[[], None]] = deque()
        self._num_executed = 0

    def forward(self, rows: tuple[Row, ...]) -> Step:
        step = Step(rows, [], [])
        self._queue.append(lambda: self._forward(step))
        return step

    def sample(self, step: Step) -> None:
        self._queue.append(lambda: self._sample(step))
        step.ticket = self._num_executed + len(self._queue)

    def wait(self, step: Step) -> None:
        while self._num_executed < step.ticket:
            self._queue.popleft()()
            self._num_executed += 1

    def _forward(self, step: Step) -> None:
        for row in step.rows:
            for index in range(row.count):
                position = row.start + index
                known = index < len(row.token_ids)
                token = row.token_ids[index] if known else self._last_tokens[row.slot]
                previous = self._read(row, position - 1) if position else 0
                block = row.block_table[position // self._block_size]
                self._kv[block][position % self._block_size] = entry_of(previous, token)
        # Read only after all rows have written: rows of one step run at the same time.
        step.entries = [[self._read(row, position) for position in range(row.start + row.count)] for row in step.rows]

    def _read(self, row: Row, position: int) -> Entry:
        return self._kv[row.block_table[position // self._block_size]][position % self._block_size]

    def _sample(self, step: Step) -> None:
        for row, entries in zip(step.rows, step.entries, strict=True):
            step.tokens.append(next_token(entries) if row.samples else None)
            if row.samples:
                self._last_tokens[row.slot] = next_token(entries)


class ToyEngine:
    """The engine's loop around a scheduler and a toy device."""

    def __init__(self, scheduler: Scheduler, overlap: bool) -> None:
        config = scheduler.config
        self.scheduler = scheduler
        self.outcomes: dict[Request, str] = {}
        self._overlap = overlap
        self._device = ToyDevice(config.num_blocks, config.block_size, config.max_num_seqs)
        self._pending: Step | None = None

    def step(self, interrupt: Callable[[], None] = lambda: None) -> Plan:
        """Run one step; ``interrupt`` is called at each moment at which the world may change the requests."""
        interrupt()
        if not self._overlap:
            self._collect_pending()
        interrupt()
        plan = self.scheduler.plan()
        for request in plan.unschedulable:
            self.finish(request, "unschedulable")
        step = self._device.forward(plan.rows)
        interrupt()
        self._collect_pending()
        self._device.sample(step)
        self._pending = step
        return plan

    def finish(self, request: Request, outcome: str) -> None:
        self.scheduler.finish(request)
        self.outcomes.setdefault(request, outcome)

    def _collect_pending(self) -> None:
        step, self._pending = self._pending, None
        if step is None:
            return
        self._device.wait(step)
        for row, token in zip(step.rows, step.tokens, strict=True):
            request = row.request
            stale = row.epoch != request.epoch
            self.scheduler.collect(row, token)
            if stale or token is None:
                continue
            if token == EOS or request.num_output == request.max_tokens:
                self.finish(request, "done")
