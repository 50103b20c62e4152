"""Nonsense, from the model or in a request, spoils the answer of one request and of no other."""

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from llguidance import LLMatcher
from msgspec import structs
from torch import Tensor

from pagewire.engine.batch import Batch
from pagewire.engine.detokenize import OutputText
from pagewire.engine.models.base import Model
from pagewire.engine.sampling.grammar import GrammarMasks
from pagewire.protocol.messages import Sampling
from pagewire.protocol.panics import no_panics
from tests.engine.driving import Driver, make_core

pytestmark = pytest.mark.usefixtures("one_thread")

GREEDY = Sampling(max_tokens=24, temperature=0.0, ignore_eos=True)
SEEDED = Sampling(max_tokens=24, temperature=1.0, top_p=0.95, seed=7, ignore_eos=True)
PROMPTS = [list(f"{'prompt number ' * number}{number}".encode()) for number in range(3)]


def ids_alone(model: Model, prompt: list[int], sampling: Sampling) -> list[int]:
    return Driver(make_core(model)).answer(prompt, sampling).ids


@dataclass
class PoisonedModel:
    """A model that computes nonsense for every sequence that holds a certain token."""

    inner: Model
    poison: int

    def __post_init__(self) -> None:
        self.vocab_size = self.inner.vocab_size
        self.allocate_kv = self.inner.allocate_kv
        self.kv_bytes_per_block = self.inner.kv_bytes_per_block

    def forward(self, batch: Batch) -> Tensor:
        logits = self.inner.forward(batch)
        logits[batch.token_ids[batch.logit_indices] == self.poison] = math.nan
        return logits


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_nonsense_from_the_model_ends_the_one_request_that_got_it(
    model: Model, runs_ahead: bool, sampling: Sampling
) -> None:
    poison = 258
    driver = Driver(make_core(PoisonedModel(model, poison), runs_ahead=runs_ahead))
    rids = [driver.submit(prompt, sampling) for prompt in (PROMPTS[0], [*PROMPTS[1], poison], PROMPTS[2])]
    driver.run()
    good, bad, fine = (driver.answers[rid] for rid in rids)
    assert bad.finish.error is not None
    assert (bad.finish.error.code, bad.finish.error.retryable, bad.ids) == ("internal", False, [])
    assert good.ids == ids_alone(model, PROMPTS[0], sampling)
    assert fine.ids == ids_alone(model, PROMPTS[2], sampling)


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": math.nan},
        {"temperature": math.inf, "top_p": 0.5},
        {"top_p": math.nan, "top_k": 5},
        {"min_p": math.nan, "top_k": 2**63},
        {"min_p": 1e300},
        {"logit_bias": {2**63: 1.0, 65: math.inf}},
        {"repetition_penalty": 0.0},
        {"frequency_penalty": math.nan},
        {"seed": 2**64 - 1, "bad_words": ((), (2**63,), (-1, 65))},
        {"shown_token_ids": (2**63,), "stop": ("", "x" * 10_000)},
    ],
    ids=str,
)
def test_no_number_spoils_more_than_its_own_request(model: Model, runs_ahead: bool, values: dict[str, Any]) -> None:
    driver = Driver(make_core(model, runs_ahead=runs_ahead))
    good = driver.submit(PROMPTS[0], SEEDED)
    bad = driver.submit(PROMPTS[1], Sampling(**{"max_tokens": 4, **values}))
    driver.run()
    assert driver.answers[bad].over
    assert driver.answers[good].ids == ids_alone(model, PROMPTS[0], SEEDED)


# --- panics of libraries written in Rust, which are no Exception


class RustPanic(BaseException):
    """As PyO3 makes one."""


def panic(*arguments: Any, **fields: Any) -> Any:
    raise RustPanic("it was not expected")


def assert_only_the_first_fails(driver: Driver, model: Model, bad: Sampling) -> None:
    rids = [driver.submit(PROMPTS[1], bad), driver.submit(PROMPTS[2], GREEDY)]
    driver.run()
    failed, fine = (driver.answers[rid] for rid in rids)
    assert failed.finish.error is not None
    assert failed.ids == []
    assert fine.ids == ids_alone(model, PROMPTS[2], GREEDY)


@pytest.mark.parametrize("method", ["deep_copy", "unsafe_compute_mask_ptr", "consume_token"])
def test_a_panic_of_a_grammar_ends_its_own_request(
    model: Model, runs_ahead: bool, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Panicking:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def deep_copy(self) -> Any:
            return panic() if method == "deep_copy" else Panicking(self._inner.deep_copy())

        def __getattr__(self, name: str) -> Any:
            return panic if name == method else getattr(self._inner, name)

    monkeypatch.setattr(
        "pagewire.engine.grammar.LLMatcher", lambda *arguments, **fields: Panicking(LLMatcher(*arguments, **fields))
    )
    driver = Driver(make_core(model, runs_ahead=runs_ahead))
    assert_only_the_first_fails(driver, model, structs.replace(SEEDED, grammar='start: "ok"'))


def test_a_panic_while_many_masks_are_filled_at_once_ends_the_request_whose_grammar_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Panicking:
        unsafe_compute_mask_ptr = panic

    class Good:
        def unsafe_compute_mask_ptr(self, pointer: int, num_bytes: int) -> None:
            ctypes.memset(pointer, 0xFF, num_bytes)

    monkeypatch.setattr("pagewire.engine.sampling.grammar.LLExecutor", Panicking)
    masks = GrammarMasks(64, 2, torch.device("meta"))
    for slot, matcher in enumerate((Panicking(), Good())):
        masks.admit(slot, matcher, GREEDY, ())
    assert masks._fill(np.array([0, 1])).tolist() == [[0, 0], [-1, -1]]


def error(*arguments: Any, **fields: Any) -> Any:
    raise ValueError("it was not expected")


@pytest.mark.parametrize("fail", [panic, error])
def test_a_failure_while_text_is_decoded_ends_its_own_request(
    model: Model, runs_ahead: bool, fail: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    push = OutputText.push

    def push_unless_first(output: OutputText, token: int) -> str:
        if output is first[0]:
            with no_panics():
                fail()
        return push(output, token)

    driver = Driver(make_core(model, runs_ahead=runs_ahead))
    first: list[OutputText] = []
    monkeypatch.setattr(OutputText, "push", push_unless_first)
    make = OutputText.__init__

    def remember(output: OutputText, *arguments: Any, **fields: Any) -> None:
        first.append(output)
        make(output, *arguments, **fields)

    monkeypatch.setattr(OutputText, "__init__", remember)
    assert_only_the_first_fails(driver, model, SEEDED)


def test_a_panic_at_the_end_of_an_answer_that_filled_the_pool_ends_its_own_request(
    model: Model, runs_ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OutputText, "flush", no_panics()(panic))
    driver = Driver(make_core(model, num_blocks=2, runs_ahead=runs_ahead))
    answer = driver.answer([65] * 20, GREEDY)
    assert answer.finish.error is not None
    assert (answer.finish.error.code, len(answer.ids)) == ("internal", 13)
