"""What it costs to choose tokens for a batch."""

import importlib
from collections.abc import Iterator
from typing import Any

from pagewire.bench.micro.timing import Measurement, measure
from pagewire.protocol.messages import Sampling

_VOCAB = 49_152
_ROWS = 32

_KINDS = {
    "greedy": Sampling(max_tokens=1, temperature=0.0),
    "temperature": Sampling(max_tokens=1, temperature=0.8),
    "top_p 0.9": Sampling(max_tokens=1, temperature=0.8, top_p=0.9),
    "top_k 40": Sampling(max_tokens=1, temperature=0.8, top_k=40),
    "greedy, penalties": Sampling(max_tokens=1, temperature=0.0, repetition_penalty=1.1, presence_penalty=0.5),
    "greedy, logprobs 5": Sampling(max_tokens=1, temperature=0.0, logprobs=5),
}


def measure_sampler() -> Iterator[Measurement]:
    """Measure a step of 32 rows over a vocabulary of 49,152 for each kind of request."""
    torch: Any = importlib.import_module("torch")  # a host that only makes load has none
    from pagewire.engine.sampling.sampler import Sampler

    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(_ROWS, _VOCAB, generator=generator) * 4
    slots, positions = list(range(_ROWS)), [5] * _ROWS
    for name, sampling in _KINDS.items():
        sampler = Sampler(_VOCAB, _ROWS, torch.device("cpu"))
        for slot in slots:
            sampler.admit(slot, sampling, range(1000, 1256), (), (2,))

        def sample(sampler: Sampler = sampler) -> None:
            sampler.sample(logits, slots, positions)

        yield measure(f"sample {_ROWS} rows, {name}", "token", sample, units=_ROWS)
