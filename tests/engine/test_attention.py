"""The reference attention equals the textbook formula over the whole sequence, however it lies in the cache."""

import random

import pytest
import torch
from torch import Tensor

from pagewire.engine.attention.base import KvCache
from pagewire.engine.attention.reference import ReferenceAttention
from pagewire.engine.models.base import BLOCK_SIZE
from tests.engine.models.paged import make_batch

HEADS, KV_HEADS, HEAD_DIM, NUM_BLOCKS = 6, 2, 8, 48
# (tokens in this step, tokens before it) of each row: decodes of similar and different lengths, chunks, prompts.
ROWS = [(1, 0), (1, 15), (1, 16), (1, 17), (1, 120), (7, 0), (7, 30), (20, 0), (3, 61)]


class Case:
    """A cache in which every row's past was written through shuffled tables, and this step's states."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.cache = KvCache(*(torch.zeros(NUM_BLOCKS, BLOCK_SIZE, KV_HEADS, HEAD_DIM) for _ in range(2)))
        free = list(range(NUM_BLOCKS))
        random.Random(0).shuffle(free)
        self.keys = [torch.randn(new + past, KV_HEADS, HEAD_DIM) for new, past in ROWS]
        self.values = [torch.randn(new + past, KV_HEADS, HEAD_DIM) for new, past in ROWS]
        self.queries = [torch.randn(new, HEADS, HEAD_DIM) for new, _ in ROWS]
        self.tables = [[free.pop() for _ in range(-(-(new + past) // BLOCK_SIZE))] for new, past in ROWS]
        for (_, past), keys, values, table in zip(ROWS, self.keys, self.values, self.tables, strict=True):
            for position in range(past):
                slot = table[position // BLOCK_SIZE], position % BLOCK_SIZE
                self.cache.keys[slot], self.cache.values[slot] = keys[position], values[position]
        self.batch = make_batch(
            [([0] * new, past, table) for (new, past), table in zip(ROWS, self.tables, strict=True)]
        )

    def run(self, window: int | None) -> tuple[Tensor, ...]:
        def new(states: list[Tensor]) -> Tensor:
            return torch.cat([state[past:] for state, (_, past) in zip(states, ROWS, strict=True)])

        attend = ReferenceAttention(BLOCK_SIZE).prepare(self.batch)
        output = attend(torch.cat(self.queries), new(self.keys), new(self.values), self.cache, window)
        return torch.split(output, [new for new, _ in ROWS])

    def expected(self, row: int, window: int | None) -> Tensor:
        new, past = ROWS[row]
        keys, values = (states[row].repeat_interleave(HEADS // KV_HEADS, 1) for states in (self.keys, self.values))
        scores = torch.einsum("qhd,khd->hqk", self.queries[row], keys) / HEAD_DIM**0.5
        distance = torch.arange(past, past + new)[:, None] - torch.arange(past + new)
        hidden = (distance < 0) | (distance >= (window or past + new))
        return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), values)


@pytest.fixture
def case() -> Case:
    return Case()


@pytest.mark.parametrize("window", [None, 1, 9, 16, 40])
def test_every_row_of_a_mixed_batch_is_computed_as_if_alone(case: Case, window: int | None) -> None:
    for row, output in enumerate(case.run(window)):
        torch.testing.assert_close(output, case.expected(row, window), rtol=1e-5, atol=1e-5)


def test_keys_and_values_of_the_step_are_written_to_their_slots(case: Case) -> None:
    case.run(None)

    keys = case.cache.keys[case.tables[6]].flatten(0, 1)[: len(case.keys[6])]
    assert torch.equal(keys, case.keys[6])


def test_what_lies_beyond_a_sequence_never_leaks_into_it(case: Case) -> None:
    clean = case.run(None)
    unused = set(range(NUM_BLOCKS)) - {block for table in case.tables for block in table}
    for states in (case.cache.keys, case.cache.values):
        states[list(unused)] = torch.nan
        for (new, past), table in zip(ROWS, case.tables, strict=True):
            states[table[-1], (new + past - 1) % BLOCK_SIZE + 1 :] = torch.nan

    assert all(torch.equal(output, before) for output, before in zip(case.run(None), clean, strict=True))


def test_a_broken_sequence_does_not_break_its_neighbours(case: Case) -> None:
    case.keys[1][:] = case.values[1][:] = torch.nan
    for block in case.tables[1]:
        case.cache.keys[block] = case.cache.values[block] = torch.nan

    finite = [bool(output.isfinite().all()) for output in case.run(None)]

    assert finite == [row != 1 for row in range(len(ROWS))]
