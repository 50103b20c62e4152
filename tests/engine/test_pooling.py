"""Embeddings: the pooled hidden states that transformers computes, however prompts are cut, batched and preempted."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pagewire.engine.models.base import Model
from pagewire.engine.models.files import resolve_model
from pagewire.engine.models.loader import load_model
from pagewire.engine.pooling import Pooling
from pagewire.protocol.messages import Sampling
from tests.engine.driving import Answer, Driver, make_core
from tests.engine.models import tiny

LENGTHS = (1, 5, 16, 23, 40, 70)
NOTHING = Sampling(max_tokens=0)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reference = tiny.make_reference(tiny.CONFIGS["qwen3"])
    return tiny.save(reference, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    draw = np.random.default_rng(1)
    return [draw.integers(tiny.VOCAB_SIZE, size=length).tolist() for length in LENGTHS]


@pytest.fixture(scope="module")
def hidden(prompts: list[list[int]]) -> list[torch.Tensor]:
    """The final hidden states of every prompt as transformers computes them, [tokens, hidden]."""
    reference = tiny.make_reference(tiny.CONFIGS["qwen3"])
    with torch.inference_mode():
        return [reference(torch.tensor([p]), output_hidden_states=True).hidden_states[-1][0] for p in prompts]


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def load(directory: Path) -> Model:
    return load_model(resolve_model(str(directory)), "float32", torch.device("cpu"))


def pooled(states: torch.Tensor, pooling: Pooling) -> NDArray[np.float32]:
    vector = states[-1] if pooling == "last" else states.mean(0)
    return (vector / vector.norm()).numpy()


def vector_of(answer: Answer) -> NDArray[np.float32]:
    [delta] = answer.deltas
    assert delta.embedding is not None
    return np.frombuffer(delta.embedding, "<f4")


def embed_all(driver: Driver, prompts: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
    rids = [driver.submit(prompt, NOTHING, embed=True) for prompt in prompts]
    driver.run()
    return [vector_of(driver.answers[rid]) for rid in rids]


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("runs_ahead", [False, True], ids=["in-step", "runs-ahead"])
@pytest.mark.parametrize("budget_tokens", [8, 256], ids=["chunked", "whole"])
def test_embeddings_are_those_of_transformers(
    directory: Path,
    prompts: list[list[int]],
    hidden: list[torch.Tensor],
    pooling: Pooling,
    runs_ahead: bool,
    budget_tokens: int,
) -> None:
    core = make_core(load(directory), pooling=pooling, runs_ahead=runs_ahead, budget_tokens=budget_tokens)
    for vector, states in zip(embed_all(Driver(core), prompts), hidden, strict=True):
        np.testing.assert_allclose(vector, pooled(states, pooling), atol=1e-5)
        assert abs(np.linalg.norm(vector) - 1) < 1e-5


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("runs_ahead", [False, True], ids=["in-step", "runs-ahead"])
def test_embeddings_beside_generation_change_neither(
    directory: Path, prompts: list[list[int]], pooling: Pooling, runs_ahead: bool
) -> None:
    greedy = Sampling(max_tokens=12, temperature=0.0, ignore_eos=True)
    alone = make_core(load(directory), pooling=pooling)
    expected_ids = [answer.ids for answer in Driver(alone).answer_all(prompts, greedy)]
    expected = embed_all(Driver(make_core(load(directory), pooling=pooling)), prompts)
    # A pool that holds a few sequences only: requests are preempted and start over.
    driver = Driver(
        make_core(
            load(directory), pooling=pooling, num_blocks=9, budget_tokens=16, max_model_len=128, runs_ahead=runs_ahead
        )
    )
    rids = [driver.submit(prompt, greedy) for prompt in prompts]
    vectors = embed_all(driver, prompts)
    assert [driver.answers[rid].ids for rid in rids] == expected_ids
    for vector, wanted in zip(vectors, expected, strict=True):
        np.testing.assert_allclose(vector, wanted, atol=1e-5)


@pytest.mark.parametrize(("pooling", "cached"), [("last", 32), ("mean", 0)])
def test_only_the_last_token_may_stand_behind_a_cached_prefix(
    directory: Path, prompts: list[list[int]], pooling: Pooling, cached: int
) -> None:
    driver = Driver(make_core(load(directory), pooling=pooling))
    [first] = embed_all(driver, [prompts[4]])
    rid = driver.submit(prompts[4], NOTHING, embed=True)
    driver.run()
    assert driver.answers[rid].finish.usage.cached == cached
    np.testing.assert_allclose(vector_of(driver.answers[rid]), first, atol=1e-6)


def test_usage_counts_the_prompt_and_no_completion(directory: Path, prompts: list[list[int]]) -> None:
    driver = Driver(make_core(load(directory)))
    finish = driver.answer(prompts[3], NOTHING, embed=True).finish
    assert (finish.reason, finish.usage.prompt, finish.usage.completion) == ("stop", 23, 0)


def test_states_that_are_not_finite_are_an_error(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(directory)
    monkeypatch.setattr(
        model,
        "forward_hidden",
        lambda batch, indices: (model.forward(batch), torch.full((len(indices), 32), torch.nan)),
    )
    error = Driver(make_core(model)).answer([1, 2], NOTHING, embed=True).finish.error
    assert error is not None
    assert error.code == "internal"


def test_a_model_that_shows_no_hidden_states_refuses(directory: Path) -> None:
    class Closed:
        """Only what ``Model`` asks for."""

        def __init__(self, model: Model) -> None:
            self.vocab_size = model.vocab_size
            self.forward, self.allocate_kv = model.forward, model.allocate_kv
            self.kv_bytes_per_block = model.kv_bytes_per_block

    refusal = Driver(make_core(Closed(load(directory)))).try_submit([1, 2], NOTHING, embed=True)
    assert refusal is not None
    assert refusal.error is not None
    assert refusal.error.code == "invalid"
