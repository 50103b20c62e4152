"""What it costs to plan a step and to collect it, without a model."""

from collections.abc import Iterator

from pagewire.bench.micro.timing import Measurement, measure
from pagewire.engine.request import Request
from pagewire.engine.scheduler import Scheduler, SchedulerConfig

_PROMPT = 256
_OUTPUT = 1024
_BLOCK_SIZE = 16


def measure_scheduler() -> Iterator[Measurement]:
    """Measure steps in which every running request decodes, and the admission of a prompt of 256 tokens."""
    for size in (1, 32, 256):
        decodes = _Decodes(size)
        decodes.step()
        yield measure(f"plan and collect {size} decodes", "token", decodes.step, units=size)
    yield measure(f"admit and finish a prompt of {_PROMPT}", "request", _Decodes(1, output=1).step)


class _Decodes:
    """A scheduler kept full: whoever has its ``output`` tokens makes room for another request."""

    def __init__(self, size: int, output: int = _OUTPUT) -> None:
        config = SchedulerConfig(
            num_blocks=size * (_PROMPT + output) // _BLOCK_SIZE + size,
            max_num_seqs=size,
            max_num_batched_tokens=size * _PROMPT,
            block_size=_BLOCK_SIZE,
        )
        self._scheduler = Scheduler(config)
        self._output = output
        self._added = 0
        for _ in range(size):
            self._add()

    def step(self) -> None:
        for row in self._scheduler.plan().rows:
            self._scheduler.collect(row, 7 if row.samples else None)
            if row.request.num_output >= self._output:
                self._scheduler.finish(row.request)
                self._add()

    def _add(self) -> None:
        prompt = [self._added, *range(_PROMPT - 1)]  # the first token differs, so that no prefix is found
        self._scheduler.add(Request(key=self._added, prompt=prompt, max_tokens=self._output))
        self._added += 1
