"""Drives an EngineCore without sockets, and holds it to the protocol's contract while doing so."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pagewire.engine.core import Admission, EngineCore
from pagewire.engine.models.base import BLOCK_SIZE, Model
from pagewire.engine.pooling import Pooling
from pagewire.engine.runner import Runner
from pagewire.engine.scheduler import Scheduler, SchedulerConfig
from pagewire.engine.vocabulary import Vocabulary
from pagewire.protocol.messages import Delta, Finish, Generate, Limits, Logprob, Sampling
from tests.toy_tokenizer import IM_END, tokenizer_json

FRONTEND = b"frontend"
# Far more steps than any test needs: a core that gets stuck fails instead of hanging.
MAX_STEPS = 20_000


@dataclass
class Answer:
    """Everything that a core said about one request."""

    deltas: list[Delta] = field(default_factory=list)

    def add(self, delta: Delta) -> None:
        assert not self.over, "nothing may follow the finish"
        self.deltas.append(delta)

    @property
    def over(self) -> bool:
        return bool(self.deltas) and self.deltas[-1].finish is not None

    @property
    def finish(self) -> Finish:
        finish = self.deltas[-1].finish
        assert finish is not None
        return finish

    @property
    def ids(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.ids]

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def logprobs(self) -> list[Logprob]:
        return [entry for delta in self.deltas for entry in delta.logprobs or ()]

    @property
    def prompt_logprobs(self) -> tuple[Logprob | None, ...]:
        (entries,) = [delta.prompt_logprobs for delta in self.deltas if delta.prompt_logprobs is not None]
        return entries


class Driver:
    """Submits requests to a core and collects what it answers, by request id."""

    def __init__(self, core: EngineCore):
        self.core = core
        self.answers: defaultdict[int, Answer] = defaultdict(Answer)
        self._next_rid = 0

    def submit(self, prompt: Sequence[int], sampling: Sampling, **fields: Any) -> int:
        """Queue a request that must be accepted."""
        rid = self._next_rid
        assert self.try_submit(prompt, sampling, **fields) is None
        return rid

    def try_submit(self, prompt: Sequence[int], sampling: Sampling, **fields: Any) -> Finish | None:
        """Queue a request; returns the refusal, if it is one."""
        message = Generate(self._next_rid, tuple(prompt), sampling, **fields)
        self._next_rid += 1
        return self.core.submit((FRONTEND, message.rid), message)

    def abort(self, rid: int) -> None:
        self.core.abort((FRONTEND, rid))

    def step(self) -> None:
        for (identity, rid), delta in self.core.step():
            assert (identity, delta.rid) == (FRONTEND, rid)
            self.answers[rid].add(delta)

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Step until there is no work or something is so; everything is free again when there is no work."""
        for _ in range(MAX_STEPS):
            if until() or not self.core.has_work:
                break
            self.step()
        else:
            raise AssertionError("the core does not come to an end")
        if not self.core.has_work:
            load = self.core.load()
            assert (load.running, load.waiting, load.kv_usage) == (0, 0, 0.0)

    def answer_all(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> list[Answer]:
        """Run all prompts together."""
        rids = [self.submit(prompt, sampling) for prompt in prompts]
        self.run()
        return [self.answers[rid] for rid in rids]

    def answer(self, prompt: Sequence[int], sampling: Sampling, **fields: Any) -> Answer:
        """Run one prompt, alone or beside what was submitted before."""
        rid = self.submit(prompt, sampling, **fields)
        self.run()
        return self.answers[rid]


def make_core(
    model: Model,
    *,
    num_blocks: int = 256,
    max_num_seqs: int = 16,
    budget_tokens: int = 64,
    max_model_len: int = 512,
    admission: Admission = Admission(1024, None),
    runs_ahead: bool = False,
    pooling: Pooling = "last",
    **scheduling: Any,
) -> EngineCore:
    """A core around a model with the byte tokenizer. ``runs_ahead`` plays a device that runs ahead of the host."""
    model.allocate_kv(num_blocks)
    scheduler = Scheduler(SchedulerConfig(num_blocks, max_num_seqs, budget_tokens, **scheduling))
    runner = Runner(model, max_num_seqs, max_model_len, (IM_END,), torch.device("cpu"), pooling)
    runner.runs_ahead = runs_ahead
    limits = Limits(max_model_len, max_num_seqs, budget_tokens, 20, BLOCK_SIZE, num_blocks)
    vocabulary = Vocabulary(tokenizer_json(), model.vocab_size)
    return EngineCore(scheduler, runner, vocabulary, frozenset({IM_END}), limits, admission)
