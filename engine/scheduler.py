"""The scheduler: decides what each step computes. Pure: no sockets, no tensors, no clock.

There is no prefill phase and no decode phase. A request has tokens, ``num_computed`` of them have their KV in the
cache, and a step gives it some of the token budget so that ``num_computed`` catches up; when it has, the step's last
logits yield the next token. A long prompt computed in chunks, a prompt half found in the prefix cache, a preempted
request computed anew and a plain decode are the same arithmetic.

Decodes come first, each with its one token, so that no prompt delays them. The rest of the budget (or a smaller part of
it, so that the step stays short for them) goes to prompts in the order of rank (priority, then arrival), running and
waiting alike. A request is admitted when the blocks for all its tokens are free, and gets them at once; only decodes
grow afterwards. When no block is free, the request of the lowest rank is preempted: it gives everything back and
waits, at its old rank, to be computed anew.

``plan`` may run before the previous plan's rows are collected (a device that overlaps): tokens not collected yet count
as ``in_flight``. Whatever ends a request's stay raises its ``epoch``, and ``collect`` ignores rows of an older epoch:
that is the only protection needed, because a device runs steps in order, so a stale row has written to its blocks
before their next owner does. Blocks enter the prefix index only when collected.
"""

from bisect import insort
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Literal

from pagewire.engine.blocks import BlockPool
from pagewire.engine.hashing import extend_chain
from pagewire.engine.plan import Draft, Plan, Row
from pagewire.engine.request import Request, State
from pagewire.engine.waiting import WaitingQueue

# A request whose prefix is being computed by another lets others pass; looking at many of them in every step costs more
# than it gains, since in a burst with a common prefix all of them wait for the same one.
MAX_PASSED_OVER = 8


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Sizes and policy. ``max_num_batched_tokens`` is the token budget of a step."""

    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    # Prompt tokens in a step that also decodes: bounds how long a decode waits for a prompt. None: the whole budget.
    max_mixed_prefill_tokens: int | None = None
    block_size: int = 16
    prefix_caching: bool = True
    policy: Literal["fcfs", "priority"] = "fcfs"  # fcfs ignores the priorities of requests

    def __post_init__(self) -> None:
        """Raise ValueError for a size that no scheduler can work with."""
        for name in ("num_blocks", "max_num_seqs", "max_num_batched_tokens", "block_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


class Scheduler:
    """Owns the requests, their slots and the block pool; ``check_invariants`` says what always holds."""

    def __init__(self, config: SchedulerConfig) -> None:
        """Start with all blocks free and without content."""
        self.config = config
        self.preemptions = 0
        self.prefix_queries = 0  # prompt tokens looked up in the prefix cache, once per request
        self.prefix_hits = 0  # those found
        self._pool = BlockPool(config.num_blocks)
        self._capacity = config.num_blocks * config.block_size  # tokens of the longest sequence that can be computed
        self._waiting = WaitingQueue()
        self._running: list[Request] = []  # in the order of rank
        # Not more slots than tokens in the budget: every running decode gets its token in every step.
        self._num_slots = min(config.max_num_seqs, config.max_num_batched_tokens)
        self._free_slots = list(reversed(range(self._num_slots)))
        self._arrivals = count()

    @property
    def num_running(self) -> int:
        """Requests that own a slot and blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests not admitted yet, or preempted."""
        return len(self._waiting)

    @property
    def waiting_tokens(self) -> int:
        """Tokens of all waiting requests together."""
        return self._waiting.num_tokens

    @property
    def kv_usage(self) -> float:
        """Share of the blocks in use, 0 to 1."""
        return self._pool.usage

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self._running or self._waiting)

    def fits_alone(self, request: Request) -> bool:
        """Whether the request's tokens fit into the whole pool; if not, a plan will report it as unschedulable."""
        return request.num_tokens <= self._capacity

    def add(self, request: Request) -> None:
        """Queue a new request with a prompt of at least one token."""
        assert request.state is State.NEW
        assert request.prompt
        priority = request.priority if self.config.policy == "priority" else 0
        request.rank = (priority, next(self._arrivals))
        request.state = State.WAITING
        self._waiting.push(request)

    def finish(self, request: Request) -> None:
        """End a request, done or aborted, wherever it is; a finished one stays as it is."""
        if request.state is State.RUNNING:
            self._running.remove(request)
            self._detach(request)
        elif request.state is State.WAITING:
            self._waiting.discard(request)
        request.state = State.FINISHED

    def plan(self) -> Plan:
        """Decide the next step. Its rows must be given to ``collect`` in order, each plan before the next but one."""
        draft = Draft(self.config.max_num_batched_tokens)
        prefilling = self._plan_decodes(draft)
        if draft.rows and self.config.max_mixed_prefill_tokens is not None:
            draft.budget = min(draft.budget, self.config.max_mixed_prefill_tokens)
        for request in prefilling:
            self._admit_waiting(draft, above=request.rank)
            if draft.budget:
                self._add_row(draft, request, min(self._num_uncomputed(request), draft.budget))
        self._admit_waiting(draft, above=(inf, inf))
        for request in draft.passed_over:
            self._waiting.push(request)
        return draft.finished()

    def collect(self, row: Row, token: int | None) -> None:
        """Take the result of a row: the sampled token, None if it samples none.

        The token of a row of an earlier epoch means nothing.
        """
        request = row.request
        if row.epoch != request.epoch:
            return
        if row.samples:
            assert token is not None
            request.tokens.append(token)
            request.in_flight -= 1
        num_full = (row.start + row.count) // self.config.block_size
        if num_full > request.num_registered and self.config.prefix_caching:
            self._register_blocks(request, num_full)

    def _plan_decodes(self, draft: Draft) -> list[Request]:
        """Give every decode its token; return the requests that have more than one token to compute."""
        prefilling = []
        for request in tuple(self._running):
            if request.state is not State.RUNNING:
                break  # preempted in favour of one above it, and so is everyone below
            uncomputed = self._num_uncomputed(request)
            if uncomputed > 1:
                prefilling.append(request)
            elif uncomputed == 1 and self._can_decode(request, draft) and self._make_room(request, draft):
                self._add_row(draft, request, 1)
        return prefilling

    def _can_decode(self, request: Request, draft: Draft) -> bool:
        """Whether the token after the next one is wanted and possible; ends a request that has filled the pool."""
        if request.in_flight:  # the token in flight may be the last one
            num_known = len(request.tokens) + request.in_flight
            return num_known <= self._capacity and num_known < len(request.prompt) + request.max_tokens
        return self.fits_alone(request) or self._give_up(request, draft)

    def _make_room(self, request: Request, draft: Draft) -> bool:
        """Give a decode the block for its token, preempting from the lowest rank up; False if it was its own victim."""
        if request.num_computed < len(request.blocks) * self.config.block_size:
            return True
        while not self._pool.num_free:
            victim = self._running[-1]
            self._preempt(victim, draft)
            if victim is request:
                return False
        request.blocks += tuple(self._pool.take(1))
        return True

    def _preempt(self, request: Request, draft: Draft) -> None:
        self._running.remove(request)
        self._detach(request)
        request.state = State.WAITING
        request.num_preempted += 1
        self.preemptions += 1
        self._waiting.push(request)
        draft.admissions_open = False  # nobody comes in on blocks that were just taken from another

    def _give_up(self, request: Request, draft: Draft) -> Literal[False]:
        self.finish(request)
        draft.unschedulable.append(request)
        return False

    def _admit_waiting(self, draft: Draft, above: tuple[float, float]) -> None:
        """Admit waiting requests that rank above ``above`` while there are budget, slots and blocks."""
        while draft.admissions_open and draft.budget and self._waiting:
            request = self._waiting.peek()
            if request.rank > above:
                return
            if not self.fits_alone(request):
                self._give_up(request, draft)
                continue
            if not self._can_admit(self._least_cost(request), draft):
                # As in every step while slots or blocks are all taken: not worth a look at the prefix cache.
                draft.admissions_open = False
                return
            hits = self._match_prefix(request)
            cost = self._num_blocks(request.num_tokens) - len(hits) + self._pool.num_free_among(hits)
            if not self._can_admit(cost, draft):
                draft.admissions_open = False
            elif self._is_being_computed(request, len(hits)):
                self._pass_over(request, cost, draft)
            else:
                self._admit(request, hits, draft)

    def _least_cost(self, request: Request) -> int:
        """The free blocks a request takes if all that may be found of it is found, in blocks that others use."""
        reusable = self._num_reusable(request) if self._reuses_prefix(request) else 0
        return self._num_blocks(request.num_tokens) - reusable

    def _can_admit(self, cost: int, draft: Draft) -> bool:
        """Whether a slot and ``cost`` free blocks are left, and a block for each running request to grow into.

        The latter keeps a request from being admitted only to be preempted, or to have others preempted, at once.
        """
        free_slots = len(self._free_slots) - len(draft.passed_over)
        free_blocks = self._pool.num_free - draft.claimed_blocks
        return free_slots > 0 and free_blocks >= cost + len(self._running)

    def _pass_over(self, request: Request, cost: int, draft: Draft) -> None:
        draft.passed_over.append(self._waiting.pop())
        draft.claimed_blocks += cost
        draft.admissions_open = len(draft.passed_over) < MAX_PASSED_OVER

    def _admit(self, request: Request, hits: list[int], draft: Draft) -> None:
        self._waiting.pop()
        self._pool.acquire(hits)
        request.blocks = (*hits, *self._pool.take(self._num_blocks(request.num_tokens) - len(hits)))
        request.num_registered = len(hits)
        request.num_computed = len(hits) * self.config.block_size
        request.slot = self._free_slots.pop()
        request.state = State.RUNNING
        insort(self._running, request, key=lambda other: other.rank)
        if not request.num_preempted and self._reuses_prefix(request):
            request.num_cached = request.num_computed
            self.prefix_queries += request.num_tokens
            self.prefix_hits += request.num_cached
        draft.admitted.append(request)
        self._add_row(draft, request, min(self._num_uncomputed(request), draft.budget))

    def _reuses_prefix(self, request: Request) -> bool:
        return self.config.prefix_caching and request.reuse_prefix

    def _match_prefix(self, request: Request) -> list[int]:
        """Cached blocks for the beginning of the request; never for its last token, whose logits are wanted."""
        if not self._reuses_prefix(request):
            return []
        extend_chain(request.hashes, request.salt, request.tokens, self.config.block_size)
        return self._pool.match(request.hashes[: self._num_reusable(request)])

    def _num_reusable(self, request: Request) -> int:
        return (request.num_tokens - 1) // self.config.block_size

    def _is_being_computed(self, request: Request, index: int) -> bool:
        """Whether a running request will soon have registered block ``index`` of this one.

        Running requests always get on or leave, so to wait for one is safe.
        """
        if not self._reuses_prefix(request) or index >= self._num_reusable(request):
            return False
        wanted = request.hashes[index]
        return any(
            other.num_registered <= index < len(other.hashes) and other.hashes[index] == wanted
            for other in self._running
        )

    def _add_row(self, draft: Draft, request: Request, num_tokens: int) -> None:
        """Plan the next ``num_tokens`` of a request."""
        start = request.num_computed
        end = start + num_tokens
        samples = end == len(request.tokens) + request.in_flight
        token_ids = request.tokens[start:end]
        draft.rows.append(
            Row(request, request.epoch, start, num_tokens, samples, request.blocks, token_ids, request.slot)
        )
        draft.budget -= num_tokens
        request.num_computed = end
        request.in_flight += samples

    def _register_blocks(self, request: Request, num_full: int) -> None:
        extend_chain(request.hashes, request.salt, request.tokens, self.config.block_size)
        for index in range(request.num_registered, num_full):
            self._pool.register(request.blocks[index], request.hashes[index])
        request.num_registered = num_full

    def _detach(self, request: Request) -> None:
        """Take everything from a request that leaves the running; its rows under way become stale."""
        self._pool.release(request.blocks)
        self._free_slots.append(request.slot)
        request.epoch += 1
        request.blocks, request.slot = (), -1
        request.num_computed = request.in_flight = request.num_registered = 0

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self.config.block_size)

    @staticmethod
    def _num_uncomputed(request: Request) -> int:
        return len(request.tokens) + request.in_flight - request.num_computed

    def check_idle(self) -> None:
        """Assert that nothing is held while no request is unfinished; costs nothing."""
        assert not self.has_work
        assert self._pool.num_free == self.config.num_blocks, "blocks leaked"
        assert len(self._free_slots) == self._num_slots, "slots leaked"

    def check_invariants(self) -> None:
        """Assert what must hold between any two calls; costs time in proportion to the pool."""
        self._pool.check_invariants(request.blocks for request in self._running)
        self._waiting.check_invariants()
        for request in self._waiting:
            assert request.state is State.WAITING
            assert (request.blocks, request.slot) == ((), -1)
            assert request.num_computed == request.in_flight == request.num_registered == 0
        slots = [request.slot for request in self._running] + self._free_slots
        assert sorted(slots) == list(range(self._num_slots))
        assert self._running == sorted(self._running, key=lambda request: request.rank)
        for request in self._running:
            self._check_running(request)

    def _check_running(self, request: Request) -> None:
        assert request.state is State.RUNNING
        assert 0 <= request.num_computed <= request.num_tokens + request.in_flight
        assert len(set(request.blocks)) == len(request.blocks) >= self._num_blocks(request.num_computed)
        assert request.num_registered * self.config.block_size <= request.num_computed
        for index, block in enumerate(request.blocks):
            known_hash = self._pool.hash_of(block)
            if known_hash is not None:
                assert index < request.num_registered, "a block in the index must have been collected"
                assert known_hash == request.hashes[index]
