"""Turns a plan into tensors, runs the model on them, and samples: everything of a step that touches the device."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from llguidance import LLMatcher
from numpy.typing import NDArray
from torch import Tensor

from pagewire.engine.batch import Batch
from pagewire.engine.models.base import BLOCK_SIZE, EmbeddingModel, LazyModel, Model
from pagewire.engine.plan import Plan, Row
from pagewire.engine.pooling import Part, Pooler, Pooling
from pagewire.engine.request import Request
from pagewire.engine.sampling.logprobs import Logprobs, TokenLogprobs, prompt_logprobs
from pagewire.engine.sampling.sampler import Sampled, Sampler
from pagewire.protocol.messages import Sampling


@dataclass(frozen=True, slots=True)
class PromptPositions:
    """The rows of a step's logits that predict prompt tokens of one plan row, and how many alternatives are wanted."""

    row: int
    logits: slice
    token_ids: list[int]
    num_top: int


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A step whose logits exist, or will on a device that runs ahead, and wait to be sampled."""

    plan: Plan
    logits: Tensor  # float32 [logit_rows, vocab]
    sampling_rows: list[int]  # of the plan
    sampling_logits: list[int]  # the row of the logits that belongs to each of them
    prompt_positions: list[PromptPositions]
    embeddings: list[tuple[int, Tensor]]  # plan row, float32 [hidden]


@dataclass(frozen=True, slots=True)
class Pending:
    """A step that has been sampled, its results still on the device."""

    plan: Plan
    sampling_rows: list[int]
    sampled: Sampled | None
    prompt_logprobs: list[tuple[int, Logprobs]]  # plan row, what it computed
    embeddings: list[tuple[int, Tensor]]


@dataclass(frozen=True, slots=True)
class StepResult:
    """The host's view of a finished step, each mapping keyed by plan row.

    A row in ``failed`` had no valid distribution, or no valid hidden states: what it computed means nothing. An
    embedding is little-endian float32 [hidden].
    """

    plan: Plan
    token_ids: dict[int, int]
    failed: frozenset[int]
    logprobs: dict[int, TokenLogprobs]
    prompt_logprobs: dict[int, list[TokenLogprobs]]
    embeddings: dict[int, bytes]


class Runner:
    """Owns the model, the sampler and the state of each slot.

    ``_tables[slot]`` mirrors the slot's block table, so that a step writes only what is new; ``_last_tokens[slot]`` is
    the slot's newest token on the device, for steps planned before the host has seen it.

    Steps run in torch's inference mode: what is computed in it, as a model's logits are, may be changed in it alone.
    """

    def __init__(
        self,
        model: Model,
        max_slots: int,
        max_model_len: int,
        eos_token_ids: Sequence[int],
        device: torch.device,
        pooling: Pooling = "last",
        num_blocks_ahead: int = 0,
    ):
        """``max_slots`` sequences may run at once, each of at most ``max_model_len`` tokens.

        ``num_blocks_ahead``: how many blocks of KV cache are to be ready beyond those that were ever used.
        """
        self.vocab_size = model.vocab_size
        self.embedding_size = model.hidden_size if isinstance(model, EmbeddingModel) else 0
        self.pooling = pooling
        # A GPU's work is queued and the host goes on, so that the next step can be planned meanwhile.
        self.runs_ahead = device.type != "cpu"
        self._model = model
        self._device = device
        self._eos_token_ids = eos_token_ids
        self._sampler = Sampler(model.vocab_size, max_slots, device)
        self._pooler = Pooler(pooling)
        self._num_blocks_ahead = num_blocks_ahead
        self._num_blocks_used = 0  # the pool hands out new ones in order
        max_blocks = -(-max_model_len // BLOCK_SIZE) + 1
        self._tables = np.zeros((max_slots, max_blocks), dtype=np.int32)
        self._known_tables: list[tuple[int, ...]] = [()] * max_slots
        self._last_tokens = torch.zeros(max_slots, dtype=torch.int64, device=device)

    def admit(
        self, request: Request, sampling: Sampling, grammar: LLMatcher | None = None, *, embed: bool = False
    ) -> None:
        """Prepare the slot that the request just got, for the first time or again; ``embed``: for an embedding."""
        self._pooler.admit(request.slot, embed)
        self._sampler.admit(request.slot, sampling, request.prompt, request.output, self._eos_token_ids, grammar)
        self._known_tables[request.slot] = ()

    def prepare_kv(self) -> bool:
        """Get memory for the next requests, for as long as there is nothing better to do; False if there is enough."""
        wanted = self._num_blocks_used + self._num_blocks_ahead
        return isinstance(self._model, LazyModel) and self._model.prepare_kv(wanted)

    def append(self, slots: Sequence[int], token_ids: Sequence[int]) -> None:
        """Note tokens that were collected, one per slot; the penalties of the next sample see them."""
        self._sampler.append(slots, token_ids)

    @torch.inference_mode()
    def forward(self, plan: Plan, prompt_tops: Sequence[int | None]) -> Forwarded:
        """Compute the logits of a plan with at least one row.

        ``prompt_tops`` has an entry per row: None, or the number of alternatives wanted at each prompt position.
        """
        slots = np.fromiter((row.slot for row in plan.rows), np.int64, len(plan.rows))
        self._update_tables(plan.rows)
        counts = np.fromiter((row.count for row in plan.rows), np.int64, len(plan.rows))
        starts = np.fromiter((row.start for row in plan.rows), np.int64, len(plan.rows))
        query_starts = np.concatenate(([0], counts.cumsum()))
        sampling = [row.samples and not self._pooler.wants(row.slot) for row in plan.rows]
        indices, sampling_rows, sampling_logits, positions = _place_logits(
            plan.rows, query_starts, prompt_tops, sampling
        )
        batch = self._build_batch(plan.rows, slots, starts, counts, query_starts, indices)
        logits, embeddings = self._compute(batch, self._pooler.parts(plan.rows, query_starts))
        return Forwarded(plan, logits, sampling_rows, sampling_logits, positions, embeddings)

    @torch.inference_mode()
    def sample(self, forwarded: Forwarded) -> Pending:
        """Choose the next token of every row that samples, and compute the logprobs that were asked for."""
        plan, rows = forwarded.plan, forwarded.sampling_rows
        sampled = None
        if rows:
            logits = forwarded.logits
            if forwarded.prompt_positions:
                logits = logits[torch.tensor(forwarded.sampling_logits, device=self._device)]
            slots = [plan.rows[row].slot for row in rows]
            positions = [_output_position(plan.rows[row]) for row in rows]
            sampled = self._sampler.sample(logits, slots, positions)
            if self.runs_ahead:
                self._last_tokens[torch.tensor(slots, device=self._device)] = sampled.token_ids
        prompts = [(entry.row, self._prompt_logprobs(forwarded.logits, entry)) for entry in forwarded.prompt_positions]
        return Pending(plan, rows, sampled, prompts, forwarded.embeddings)

    def fetch(self, pending: Pending) -> StepResult:
        """Bring a step's results to the host; waits for the device."""
        token_ids: dict[int, int] = {}
        failed: list[int] = []
        logprobs: dict[int, TokenLogprobs] = {}
        sampled, rows = pending.sampled, pending.sampling_rows
        if sampled:
            token_ids = dict(zip(rows, sampled.token_ids.tolist(), strict=True))
            failed = [row for row, finite in zip(rows, sampled.finite.tolist(), strict=True) if not finite]
            if sampled.logprobs:
                asking = [rows[index] for index in sampled.logprob_rows]
                logprobs = dict(zip(asking, sampled.logprobs.unpack(), strict=True))
        prompts = {row: entries.unpack() for row, entries in pending.prompt_logprobs}
        vectors = {row: vector.cpu().numpy() for row, vector in pending.embeddings}
        failed += [row for row, vector in vectors.items() if not np.isfinite(vector).all()]
        embeddings = {row: vector.astype("<f4").tobytes() for row, vector in vectors.items()}
        return StepResult(pending.plan, token_ids, frozenset(failed), logprobs, prompts, embeddings)

    def warm_up(self, num_tokens: int) -> None:
        """Run a prefill of ``num_tokens`` and a decode once, so that the first request does not pay for lazy set-up."""
        request = Request(key="warm-up", prompt=[0] * num_tokens, max_tokens=1)
        request.slot = 0
        self.admit(request, Sampling(max_tokens=1))
        table = tuple(range(-(-num_tokens // BLOCK_SIZE)))
        for start, count in ((0, num_tokens - 1), (num_tokens - 1, 1)):
            if not count:
                continue
            is_last = start + count == num_tokens
            row = Row(request, 0, start, count, is_last, table, [0] * count, request.slot)
            self.fetch(self.sample(self.forward(Plan((row,), (), ()), [None])))

    def _compute(self, batch: Batch, parts: Sequence[Part]) -> tuple[Tensor, list[tuple[int, Tensor]]]:
        """Run the model; returns the logits, and the embeddings of the prompts that end in this step."""
        if not parts:
            return self._model.forward(batch), []
        assert isinstance(self._model, EmbeddingModel)
        indices = torch.tensor([token for part in parts for token in part.tokens], device=self._device)
        logits, hidden = self._model.forward_hidden(batch, indices)
        return logits, self._pooler.add(parts, hidden)

    def _update_tables(self, rows: Sequence[Row]) -> None:
        for row in rows:
            known, table = self._known_tables[row.slot], row.block_table
            if known is not table:
                # Within one stay in a slot a table only grows at its end.
                added = table[len(known) :]
                self._tables[row.slot, len(known) : len(table)] = added
                self._num_blocks_used = max(self._num_blocks_used, max(added, default=0) + 1)
                self._known_tables[row.slot] = table

    def _build_batch(
        self,
        rows: Sequence[Row],
        slots: NDArray[np.int64],
        starts: NDArray[np.int64],
        counts: NDArray[np.int64],
        query_starts: NDArray[np.int64],
        logit_indices: list[int],
    ) -> Batch:
        row_of_token = np.repeat(np.arange(len(rows)), counts)
        positions = starts[row_of_token] + np.arange(query_starts[-1]) - query_starts[row_of_token]
        blocks = self._tables[slots[row_of_token], positions // BLOCK_SIZE].astype(np.int64)
        longest = max(len(row.block_table) for row in rows)
        seq_lens = starts + counts
        return Batch(
            token_ids=self._token_ids(rows, query_starts),
            positions=self._to_device(positions),
            slot_mapping=self._to_device(blocks * BLOCK_SIZE + positions % BLOCK_SIZE),
            block_tables=self._to_device(self._tables[slots, :longest]),
            seq_lens=self._to_device(seq_lens.astype(np.int32)),
            query_starts=self._to_device(query_starts.astype(np.int32)),
            logit_indices=torch.tensor(logit_indices, dtype=torch.int64, device=self._device),
            query_starts_host=tuple(query_starts.tolist()),
            seq_lens_host=tuple(seq_lens.tolist()),
        )

    def _token_ids(self, rows: Sequence[Row], query_starts: NDArray[np.int64]) -> Tensor:
        """The step's input tokens; those the host has not seen yet are taken from the device."""
        host: list[int] = []
        unseen: list[int] = []
        for index, row in enumerate(rows):
            host += row.token_ids
            if len(row.token_ids) < row.count:
                host.append(0)
                unseen.append(index)
        token_ids = self._to_device(np.array(host, dtype=np.int64))
        if unseen:
            at = torch.tensor([int(query_starts[index + 1]) - 1 for index in unseen], device=self._device)
            slots = torch.tensor([rows[index].slot for index in unseen], device=self._device)
            token_ids[at] = self._last_tokens[slots]
        return token_ids

    def _prompt_logprobs(self, logits: Tensor, entry: PromptPositions) -> Logprobs:
        token_ids = torch.tensor(entry.token_ids, dtype=torch.int64, device=self._device)
        return prompt_logprobs(logits[entry.logits], token_ids, entry.num_top)

    def _to_device(self, array: NDArray[np.int64] | NDArray[np.int32]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device, non_blocking=True)


def _output_position(row: Row) -> int:
    """The index in the output of the token that the row samples."""
    return row.start + row.count - row.request.num_prompt


def _place_logits(
    rows: Sequence[Row],
    query_starts: NDArray[np.int64],
    prompt_tops: Sequence[int | None],
    sampling: Sequence[bool],
) -> tuple[list[int], list[int], list[int], list[PromptPositions]]:
    """Lay out a step's logits: for each row its wanted prompt positions, then the position it samples from, if it does.

    Returns the token indices whose logits are wanted, the plan rows that sample, the logits row of each of those,
    and the prompt positions.
    """
    indices: list[int] = []
    sampling_rows: list[int] = []
    sampling_logits: list[int] = []
    positions: list[PromptPositions] = []
    for number, (row, num_top) in enumerate(zip(rows, prompt_tops, strict=True)):
        base = int(query_starts[number])
        if num_top is not None:
            # The logits at a position predict the token after it; the last prompt token's are for sampling.
            end = min(row.start + row.count, row.request.num_prompt - 1)
            wanted = max(0, end - row.start)
            predicted = list(row.request.prompt[row.start + 1 : end + 1])
            # A device that runs ahead plans decodes before the host has booked the last prompt position.
            if wanted:
                at = slice(len(indices), len(indices) + wanted)
                positions.append(PromptPositions(number, at, predicted, num_top))
            indices += range(base, base + wanted)
        if sampling[number]:
            sampling_rows.append(number)
            sampling_logits.append(len(indices))
            indices.append(base + row.count - 1)
    return indices, sampling_rows, sampling_logits, positions
