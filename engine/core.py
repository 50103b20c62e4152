"""The engine without sockets: requests in, steps, deltas out.

The same object serves the network loop and offline use. A step is: plan, run the model, collect, sample. On a device
that runs ahead of the host, what is collected is the previous step, while the current one runs.
"""

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from msgspec import structs

from pagewire.engine.detokenize import OutputText
from pagewire.engine.grammar import GrammarCompiler, follow
from pagewire.engine.plan import Plan, Row
from pagewire.engine.request import Request
from pagewire.engine.runner import Pending, Runner, StepResult
from pagewire.engine.scheduler import Scheduler
from pagewire.engine.sequence import Key, Sequence, make_request
from pagewire.engine.tokens import TokenReader
from pagewire.engine.vocabulary import Vocabulary
from pagewire.protocol.messages import Delta, Error, Finish, Generate, Limits, Load, Sampling, Usage

logger = logging.getLogger(__name__)

# How long an idle engine waits for a grammar before it looks at its sockets again.
GRAMMAR_WAIT_S = 0.002
# The sampler keeps counts and token ids in arrays of this width.
LARGEST_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Admission:
    """How much may wait before new requests are refused as overload; ``max_tokens`` None means any number."""

    max_requests: int
    max_tokens: int | None


class EngineCore:
    """Owns every unfinished sequence; a sequence is here exactly as long as its request is in the scheduler."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        vocabulary: Vocabulary,
        eos_token_ids: frozenset[int],
        limits: Limits,
        admission: Admission,
        clock: Callable[[], float] = time.monotonic,
    ):
        """``clock`` gives monotonic seconds."""
        self._scheduler = scheduler
        self._runner = runner
        self._vocabulary = vocabulary
        self._reader = TokenReader(vocabulary, eos_token_ids)
        self._grammars = GrammarCompiler(vocabulary, runner.vocab_size, eos_token_ids)
        self._limits = limits
        self._admission = admission
        self._clock = clock
        self._sequences: dict[Hashable, Sequence] = {}
        self._pending: Pending | None = None
        self._refusal: str | None = None
        self._counters = dict.fromkeys(
            ("steps", "prompt_tokens", "cached_tokens", "generation_tokens", "rejections", "aborts"), 0
        )
        self._step_seconds = 0.0

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return self._scheduler.has_work or self._pending is not None or len(self._grammars) > 0

    def is_compiling(self, key: Key) -> bool:
        """Whether the request waits for its grammar; a later step accepts or refuses it."""
        return key in self._grammars

    def submit(self, key: Key, message: Generate) -> Finish | None:
        """Queue a request; what comes back otherwise is why it was refused."""
        error = self._check(key, message)
        if error:
            self._counters["rejections"] += 1
            return Finish("error", usage=Usage(len(message.prompt), 0), error=error)
        room = self._limits.max_model_len - len(message.prompt)
        max_tokens = 1 if message.embed else max(1, min(message.sampling.max_tokens, room))
        request = make_request(key, message, max_tokens, reuse_prefix=self._may_reuse_prefix(message))
        output = OutputText(self._vocabulary, message.sampling, continues=True)
        self._sequences[key] = Sequence(key, request, message.sampling, output, self._clock(), message.embed)
        if message.sampling.grammar is None:
            self._scheduler.add(request)
        else:
            self._grammars.start(key, message.sampling.grammar)
        return None

    def abort(self, key: Key) -> None:
        """Drop a request and free what it holds; unknown ones are ignored."""
        sequence = self._sequences.get(key)
        if sequence:
            self._counters["aborts"] += 1
            self._forget(sequence)

    def end(self, key: Key) -> Delta | None:
        """End a request as if its text ended here; None for an unknown one."""
        sequence = self._sequences.get(key)
        return self._finish(sequence, Delta(key[1]), Finish("stop", sequence.usage()))[1] if sequence else None

    def abort_all(self, identity: bytes) -> int:
        """Drop every request of one frontend; returns how many there were."""
        keys = [sequence.key for sequence in self._sequences.values() if sequence.key[0] == identity]
        for key in keys:
            self.abort(key)
        return len(keys)

    def refuse_new(self, reason: str) -> None:
        """Refuse every request from now on, as draining."""
        self._refusal = reason

    def load(self) -> Load:
        """How busy the engine is, and its counters."""
        scheduler = self._scheduler
        return Load(
            running=scheduler.num_running,
            waiting=scheduler.num_waiting + len(self._grammars),
            kv_usage=scheduler.kv_usage,
            step_seconds=self._step_seconds,
            prefix_queries=scheduler.prefix_queries,
            prefix_hits=scheduler.prefix_hits,
            preemptions=scheduler.preemptions,
            **self._counters,
        )

    def prepare(self) -> bool:
        """Do some work ahead of requests, for milliseconds; False if there is none. For when there is nothing else."""
        return self._runner.prepare_kv()

    def step(self) -> list[tuple[Key, Delta]]:
        """Run one step and return what it (or, on a device that runs ahead, the one before) produced."""
        deltas = self._take_compiled()
        started = self._clock()
        plan = self._scheduler.plan()
        # The time of a device's last step is spent in waiting for its results.
        runs = bool(plan.rows) or self._pending is not None
        for request in plan.admitted:
            self._admit(request, started)
        forwarded = self._runner.forward(plan, self._prompt_tops(plan)) if plan.rows else None
        deltas += self._collect_pending()
        self._pending = self._runner.sample(forwarded) if forwarded else None
        if not self._runner.runs_ahead:
            deltas += self._collect_pending()
        deltas += [self._give_up(request) for request in plan.unschedulable]
        if plan.rows:
            self._counters["steps"] += 1
        if runs:
            self._step_seconds += self._clock() - started
        if not self._scheduler.has_work:
            self._scheduler.check_idle()
        return deltas

    def _check(self, key: Key, message: Generate) -> Error | None:
        """Why a request cannot be taken; a frontend has checked it, but the engine trusts no frontend."""
        if self._refusal:
            return Error("draining", self._refusal, retryable=True)
        if key in self._sequences:
            return Error("invalid", f"request id {message.rid} is in use")
        if not message.prompt:
            return Error("invalid", "the prompt has no tokens", param="prompt")
        if min(message.prompt) < 0 or max(message.prompt) >= self._runner.vocab_size:
            text = f"the prompt has a token id outside 0..{self._runner.vocab_size - 1}"
            return Error("invalid", text, param="prompt")
        if error := _wrong_sampling(message.sampling, self._limits.max_logprobs):
            return error
        room = self._limits.max_model_len - len(message.prompt)
        if message.embed and not self._runner.embedding_size:
            return Error("invalid", "this engine makes no embeddings")
        if room < (0 if message.embed else min(1, message.sampling.max_tokens)):
            return _too_long(len(message.prompt), self._limits.max_model_len)
        if self._is_overloaded(len(message.prompt)):
            return Error("overloaded", "too many requests are waiting", retryable=True)
        return None

    def _may_reuse_prefix(self, message: Generate) -> bool:
        """Whether cached tokens may be skipped: not if something is wanted of every position."""
        pooled = message.embed and self._runner.pooling != "last"
        return message.sampling.prompt_logprobs is None and not pooled

    def _is_overloaded(self, num_tokens: int) -> bool:
        """Whether the queue is full. What a free slot will take at once does not count as queued."""
        unfinished = self._scheduler.num_waiting + self._scheduler.num_running + len(self._grammars)
        queued = unfinished - self._limits.max_num_seqs
        if queued >= self._admission.max_requests:
            return True
        limit = self._admission.max_tokens
        return limit is not None and queued >= 0 and self._scheduler.waiting_tokens + num_tokens > limit

    def _take_compiled(self) -> list[tuple[Key, Delta]]:
        """Queue the requests whose grammars are done; with nothing else to do, wait a moment for the first."""
        if not len(self._grammars):
            return []
        is_idle = not self._scheduler.has_work and self._pending is None
        deltas: list[tuple[Key, Delta]] = []
        for key, compiled in self._grammars.ready(GRAMMAR_WAIT_S if is_idle else 0.0):
            sequence = self._sequences[key]
            if isinstance(compiled, Error):
                self._counters["rejections"] += 1
                deltas.append(self._fail(sequence, compiled))
            else:
                sequence.grammar = compiled
                self._scheduler.add(sequence.request)
                deltas.append((key, Delta(sequence.rid)))
        return deltas

    def _admit(self, request: Request, now: float) -> None:
        sequence = self._sequences[request.key]
        if sequence.admitted is None:
            sequence.admitted = now
            self._counters["prompt_tokens"] += request.num_prompt
            self._counters["cached_tokens"] += request.num_cached
        self._runner.admit(request, sequence.sampling, sequence.grammar, embed=sequence.embeds)

    def _prompt_tops(self, plan: Plan) -> list[int | None]:
        """By row: how many alternatives are wanted at each prompt position it computes, None if it is not asked."""
        return [self._sequences[row.request.key].wanted_prompt_top for row in plan.rows]

    def _collect_pending(self) -> list[tuple[Key, Delta]]:
        """Book what the pending step computed; rows whose request has left since then mean nothing."""
        if not self._pending:
            return []
        result = self._runner.fetch(self._pending)
        self._pending = None
        deltas: list[tuple[Key, Delta]] = []
        slots: list[int] = []
        tokens: list[int] = []
        for index, row in enumerate(result.plan.rows):
            sequence = self._sequences.get(row.request.key)
            if sequence is None or row.epoch != row.request.epoch:
                continue
            try:
                if index in result.prompt_logprobs:
                    self._reader.read_prompt(sequence, row.start, result.prompt_logprobs[index])
                if row.samples and sequence.embeds:
                    deltas.append(self._take_embedding(sequence, row, result, index))
                elif row.samples:
                    deltas.append(self._take(sequence, row, result, index))
                    slots.append(row.slot)
                    tokens.append(result.token_ids[index])
                else:
                    self._scheduler.collect(row, None)
            except Exception:  # of reading this answer: those of others are none the worse for it
                deltas.append(self._fail_unreadable(sequence))
        self._runner.append(slots, tokens)
        return deltas

    def _take(self, sequence: Sequence, row: Row, result: StepResult, index: int) -> tuple[Key, Delta]:
        """Book one sampled token and say what it adds."""
        if index in result.failed:
            error = Error("internal", "the model produced no valid distribution for this request")
            return self._fail(sequence, error)
        prompt_logprobs = sequence.take_prompt_logprobs()
        if sequence.sampling.max_tokens == 0:
            delta = Delta(sequence.rid, prompt_logprobs=prompt_logprobs)
            return self._finish(sequence, delta, Finish("length", sequence.usage()))
        if sequence.first_token is None:
            sequence.first_token = self._clock()
        token = result.token_ids[index]
        self._scheduler.collect(row, token)
        if sequence.grammar and (failure := follow(sequence.grammar, token)):
            return self._fail(sequence, failure)
        self._counters["generation_tokens"] += 1
        read = self._reader.read(sequence, token, result.logprobs.get(index))
        delta = Delta(sequence.rid, read.text, (token,), read.logprobs, None, prompt_logprobs)
        if read.finish is None:
            return sequence.key, delta
        return self._finish(sequence, delta, Finish(read.finish, sequence.usage(), read.matched))

    def _take_embedding(self, sequence: Sequence, row: Row, result: StepResult, index: int) -> tuple[Key, Delta]:
        """End a request whose prompt has been read with its embedding."""
        if index in result.failed:
            error = Error("internal", "the model produced no valid hidden states for this request")
            return self._fail(sequence, error)
        sequence.first_token = self._clock()
        finish = Finish("stop", sequence.usage())
        # Makes the prompt's blocks known to others; the token stands for one that was never sampled.
        self._scheduler.collect(row, 0)
        return self._finish(sequence, Delta(sequence.rid, embedding=result.embeddings[index]), finish)

    def _finish(self, sequence: Sequence, delta: Delta, finish: Finish) -> tuple[Key, Delta]:
        self._forget(sequence)
        return sequence.key, structs.replace(delta, finish=finish)

    def _fail(self, sequence: Sequence, error: Error) -> tuple[Key, Delta]:
        return self._finish(sequence, Delta(sequence.rid), Finish("error", sequence.usage(), error=error))

    def _fail_unreadable(self, sequence: Sequence) -> tuple[Key, Delta]:
        """End a request whose output cannot be read; called where the exception was caught."""
        logger.exception("a request failed")
        error = Error("internal", "the engine failed to read what the model gave for this request")
        return self._fail(sequence, error)

    def _forget(self, sequence: Sequence) -> None:
        del self._sequences[sequence.key]
        self._grammars.drop(sequence.key)
        self._scheduler.finish(sequence.request)

    def _give_up(self, request: Request) -> tuple[Key, Delta]:
        """End a request that the whole pool cannot hold: an error if nothing was sent, else an early end."""
        sequence = self._sequences[request.key]
        if not request.num_output:
            error = _too_long(request.num_prompt, self._limits.num_blocks * self._limits.block_size)
            return self._fail(sequence, error)
        try:
            delta = Delta(sequence.rid, sequence.output.flush())
        except Exception:  # likewise
            return self._fail_unreadable(sequence)
        return self._finish(sequence, delta, Finish("length", sequence.usage()))


def _wrong_sampling(sampling: Sampling, max_logprobs: int) -> Error | None:
    """What a step could not work with; anything else that makes no sense spoils its own request only."""
    for name, limit in (
        ("max_tokens", LARGEST_INT64),
        ("min_tokens", LARGEST_INT64),
        ("logprobs", max_logprobs),
        ("prompt_logprobs", max_logprobs),
    ):
        value = getattr(sampling, name)
        if value is not None and not 0 <= value <= limit:
            return Error("invalid", f"{name} must be between 0 and {limit}, not {value}", param=name)
    for name in ("stop_token_ids", "allowed_token_ids"):
        if not all(0 <= token <= LARGEST_INT64 for token in getattr(sampling, name)):
            return Error("invalid", f"{name} must hold token ids", param=name)
    return None


def _too_long(num_tokens: int, limit: int) -> Error:
    text = f"This model's maximum context length is {limit} tokens. However, the prompt has {num_tokens} tokens."
    return Error("context_length_exceeded", text, param="prompt")
