"""Paged attention in plain torch: runs on every device and is the oracle for faster implementations."""

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pagewire.engine.attention.base import KvCache
from pagewire.engine.batch import Batch


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows with the same number of queries and a similar number of blocks, computed together."""

    tokens: Tensor  # int64 [rows * queries], where the queries lie in the batch
    blocks: Tensor  # int64 [rows * blocks], the part of the tables that the rows can see
    unwritten: Tensor  # int64: which of the rows * keys positions are beyond the end of their sequence
    visible: Tensor  # bool [rows, 1, queries, keys]: causal, and within the window


class ReferenceAttention:
    """Gathers the blocks of each group of similar rows and runs scaled dot-product attention on them."""

    def __init__(self, block_size: int) -> None:
        """Serve a cache of blocks of ``block_size`` tokens."""
        self._block_size = block_size

    def prepare(self, batch: Batch) -> "ReferenceStep":
        """The attention of one step; rows are grouped when a layer first asks, once per window size."""
        return ReferenceStep(batch, self._block_size)


class ReferenceStep:
    """Attention over one batch."""

    def __init__(self, batch: Batch, block_size: int) -> None:
        """Remember the batch; nothing is computed yet."""
        self._batch = batch
        self._block_size = block_size
        self._groups: dict[int | None, list[_Group]] = {}

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, cache: KvCache, window: int | None) -> Tensor:
        """See ``StepAttention``."""
        cache.keys.flatten(0, 1).index_copy_(0, self._batch.slot_mapping, keys)
        cache.values.flatten(0, 1).index_copy_(0, self._batch.slot_mapping, values)
        if window not in self._groups:
            self._groups[window] = self._group(window)
        output = torch.empty_like(queries)
        for group in self._groups[window]:
            output.index_copy_(0, group.tokens, _attend(queries.index_select(0, group.tokens), group, cache))
        return output

    def _group(self, window: int | None) -> list[_Group]:
        rows_by_shape: dict[tuple[int, int], list[int]] = defaultdict(list)
        for row in range(len(self._batch.seq_lens_host)):
            first, last = self._visible_blocks(row, window)
            # Lengths within a factor of two share a group: little padding, and few groups whatever the batch.
            rows_by_shape[self._num_queries(row), (last - first).bit_length()].append(row)
        return [self._build(rows, window) for rows in rows_by_shape.values()]

    def _num_queries(self, row: int) -> int:
        starts = self._batch.query_starts_host
        return starts[row + 1] - starts[row]

    def _visible_blocks(self, row: int, window: int | None) -> tuple[int, int]:
        """The range of table entries that any query of the row can see."""
        length = self._batch.seq_lens_host[row]
        start = length - self._num_queries(row)
        first = 0 if window is None else max(0, start - window + 1) // self._block_size
        return first, -(-length // self._block_size)

    def _build(self, rows: list[int], window: int | None) -> _Group:
        batch, device = self._batch, self._batch.token_ids.device
        ranges = [self._visible_blocks(row, window) for row in rows]
        width = max(last - first for first, last in ranges)
        num_queries = self._num_queries(rows[0])

        starts = torch.tensor([batch.query_starts_host[row] for row in rows], device=device)
        tokens = (starts[:, None] + torch.arange(num_queries, device=device)).flatten()
        firsts = torch.tensor([first for first, _ in ranges], device=device)[:, None]
        # Past the end of a row's table any block will do: what is not written is neither visible nor read.
        entries = (firsts + torch.arange(width, device=device)).clamp(max=batch.block_tables.shape[1] - 1)
        blocks = batch.block_tables[torch.tensor(rows, device=device)[:, None], entries].long().flatten()

        keys = firsts * self._block_size + torch.arange(width * self._block_size, device=device)
        positions = batch.positions[tokens].view(len(rows), 1, num_queries, 1)
        visible = keys[:, None, None, :] <= positions
        if window is not None:
            visible &= keys[:, None, None, :] > positions - window
        return _Group(tokens, blocks, self._unwritten(rows, ranges, width).to(device), visible)

    def _unwritten(self, rows: list[int], ranges: list[tuple[int, int]], width: int) -> Tensor:
        """Indices, among the gathered positions of all rows, of those beyond a row's sequence; found on the host."""
        count = width * self._block_size
        used = [
            self._batch.seq_lens_host[row] - first * self._block_size
            for row, (first, _) in zip(rows, ranges, strict=True)
        ]
        return torch.cat([torch.arange(at * count + length, (at + 1) * count) for at, length in enumerate(used)])


def _attend(queries: Tensor, group: _Group, cache: KvCache) -> Tensor:
    """Attention of one group; queries and result are [rows * queries, heads, head_dim]."""
    _, heads, head_dim = queries.shape
    rows, _, num_queries, _ = group.visible.shape
    kv_heads = cache.keys.shape[2]
    shared = heads // kv_heads  # query heads that share one K/V head: laid out as further queries of that head
    query = queries.view(rows, num_queries, kv_heads, shared, head_dim).permute(0, 2, 3, 1, 4)
    query = query.reshape(rows, kv_heads, shared * num_queries, head_dim)
    mask = group.visible.expand(rows, shared, num_queries, -1).reshape(rows, 1, shared * num_queries, -1)
    output = functional.scaled_dot_product_attention(
        query, _gather(cache.keys, group, rows), _gather(cache.values, group, rows), attn_mask=mask
    )
    output = output.view(rows, kv_heads, shared, num_queries, head_dim).permute(0, 3, 1, 2, 4)
    return output.reshape(rows * num_queries, heads, head_dim)


def _gather(cache: Tensor, group: _Group, rows: int) -> Tensor:
    """The group's blocks as [rows, kv_heads, keys, head_dim], with zeros where the sequence has nothing.

    A recycled block may hold NaN from a broken request; masking alone does not stop it, since 0 * NaN is NaN.
    """
    states = cache.index_select(0, group.blocks).flatten(0, 1)
    states.index_fill_(0, group.unwritten, 0.0)
    return states.view(rows, -1, *states.shape[1:]).transpose(1, 2)
