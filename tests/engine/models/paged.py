"""A tiny stand-in for the engine: drives ``Model.forward`` over shuffled block tables, greedily."""

import random
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pagewire.engine.batch import Batch
from pagewire.engine.models.base import BLOCK_SIZE, Model

NUM_BLOCKS = 64


@dataclass
class Sequence:
    """One request: its ids, how many of them are in the cache, and the logits seen at every position."""

    ids: list[int]
    blocks: list[int]
    goal: int  # length at which generation ends
    computed: int = 0
    logits: list[Tensor] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return len(self.ids) >= self.goal


def make_batch(rows: list[tuple[list[int], int, list[int]]]) -> Batch:
    """A batch of rows (ids, position of the first, block table) in which the logits of every token are wanted."""
    starts, lengths, slots = [0], [], []
    for ids, first, blocks in rows:
        starts.append(starts[-1] + len(ids))
        lengths.append(first + len(ids))
        slots += [blocks[at // BLOCK_SIZE] * BLOCK_SIZE + at % BLOCK_SIZE for at in range(first, first + len(ids))]
    width = max(-(-length // BLOCK_SIZE) for length in lengths)
    tables = [(blocks + [0] * width)[:width] for _, _, blocks in rows]
    return Batch(
        token_ids=torch.tensor([token for ids, _, _ in rows for token in ids]),
        positions=torch.tensor([at for ids, first, _ in rows for at in range(first, first + len(ids))]),
        slot_mapping=torch.tensor(slots),
        block_tables=torch.tensor(tables, dtype=torch.int32),
        seq_lens=torch.tensor(lengths, dtype=torch.int32),
        query_starts=torch.tensor(starts, dtype=torch.int32),
        logit_indices=torch.arange(starts[-1]),
        query_starts_host=tuple(starts),
        seq_lens_host=tuple(lengths),
    )


def generate(model: Model, prompts: list[list[int]], new_tokens: int, chunk: int = 1000) -> list[Sequence]:
    """Continue all prompts greedily, together, computing at most ``chunk`` tokens of each in a step.

    Prompts of different lengths are at different stages in the same step. The cache must be allocated with
    ``NUM_BLOCKS`` blocks.
    """
    free = list(range(NUM_BLOCKS))
    random.Random(len(prompts)).shuffle(free)
    sequences = []
    for prompt in prompts:
        goal = len(prompt) + new_tokens
        sequences.append(Sequence(list(prompt), [free.pop() for _ in range(-(-goal // BLOCK_SIZE))], goal))
    while running := [sequence for sequence in sequences if not sequence.done]:
        _step(model, running, chunk)
    return sequences


def _step(model: Model, running: list[Sequence], chunk: int) -> None:
    chunks = [sequence.ids[sequence.computed :][:chunk] for sequence in running]
    rows = [(ids, sequence.computed, sequence.blocks) for ids, sequence in zip(chunks, running, strict=True)]
    logits = torch.split(model.forward(make_batch(rows)), [len(ids) for ids in chunks])
    for sequence, ids, row in zip(running, chunks, logits, strict=True):
        sequence.logits += list(row)
        sequence.computed += len(ids)
        if sequence.computed == len(sequence.ids):
            sequence.ids.append(int(row[-1].argmax()))
