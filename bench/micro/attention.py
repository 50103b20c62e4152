"""What attention costs in one layer: a batch of decodes, and a chunk of a prompt."""

import importlib
from collections.abc import Iterator
from typing import Any

from pagewire.bench.micro.timing import Measurement, measure

_BLOCK_SIZE = 16
_HEADS, _KV_HEADS, _HEAD_DIM = 9, 3, 64


def measure_attention() -> Iterator[Measurement]:
    """Measure 32 decodes over 384 tokens each, and 512 new tokens after 512 old ones, in bfloat16."""
    torch: Any = importlib.import_module("torch")  # a host that only makes load has none
    from pagewire.engine.attention.base import KvCache
    from pagewire.engine.attention.reference import ReferenceAttention

    for name, rows, count, length in (("32 decodes over 384", 32, 1, 384), ("512 tokens after 512", 1, 512, 1024)):
        batch = _make_batch(torch, rows, count, length)
        blocks = rows * length // _BLOCK_SIZE
        shape = (blocks, _BLOCK_SIZE, _KV_HEADS, _HEAD_DIM)
        cache = KvCache(torch.randn(shape).bfloat16(), torch.randn(shape).bfloat16())
        queries = torch.randn(rows * count, _HEADS, _HEAD_DIM).bfloat16()
        keys = torch.randn(rows * count, _KV_HEADS, _HEAD_DIM).bfloat16()
        step = ReferenceAttention(_BLOCK_SIZE).prepare(batch)

        def attend(step: Any = step, queries: Any = queries, keys: Any = keys, cache: Any = cache) -> None:
            step(queries, keys, keys, cache, None)

        yield measure(f"torch attention, {name}", "layer", attend)


def _make_batch(torch: Any, rows: int, count: int, length: int) -> Any:
    """Make a batch of ``rows`` sequences of ``length`` tokens, the last ``count`` of which are new."""
    from pagewire.engine.batch import Batch

    per_row = length // _BLOCK_SIZE
    tables = torch.arange(rows * per_row, dtype=torch.int32).view(rows, per_row)
    positions = torch.arange(length - count, length).repeat(rows)
    first = torch.arange(rows).repeat_interleave(count) * length
    starts = tuple(range(0, rows * count + 1, count))
    return Batch(
        token_ids=torch.zeros(rows * count, dtype=torch.int64),
        positions=positions,
        slot_mapping=first + positions,
        block_tables=tables,
        seq_lens=torch.full((rows,), length, dtype=torch.int32),
        query_starts=torch.tensor(starts, dtype=torch.int32),
        logit_indices=torch.tensor(starts[1:], dtype=torch.int64) - 1,
        query_starts_host=starts,
        seq_lens_host=(length,) * rows,
    )
