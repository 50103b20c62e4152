"""Nonsense, from the model or in a request, spoils the answer of one request and of no other."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
from torch import Tensor

from pagewire.engine.batch import Batch
from pagewire.engine.models.base import Model
from pagewire.protocol.messages import Sampling
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
