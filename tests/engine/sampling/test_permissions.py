"""Allow-lists and bad words: what may not come never comes, and other rows do not notice."""

from collections.abc import Iterator

import pytest
import torch

from pagewire.engine.sampling.sampler import Sampler
from pagewire.protocol.messages import Sampling

CPU = torch.device("cpu")
VOCAB = 50
EOS = (3,)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def generate(sampling: Sampling, count: int = 40, resume_at: int | None = None) -> list[int]:
    """Sample from changing logits; at ``resume_at`` the request loses its slot and gets another one."""
    sampler = Sampler(VOCAB, 2, CPU)
    sampler.admit(0, sampling, [], [], EOS)
    slot, output = 0, []
    for position in range(count):
        if position == resume_at:
            slot = 1
            sampler.admit(slot, sampling, [], output, EOS)
        logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(position)) * 3
        [token] = sampler.sample(logits, [slot], [position]).token_ids.tolist()
        sampler.append([slot], [token])
        output.append(token)
    return output


KINDS = pytest.mark.parametrize(
    "values",
    [{"temperature": 0.0}, {"temperature": 1.0}, {"temperature": 1.5, "top_k": 40, "top_p": 0.9, "min_p": 0.01}],
    ids=["greedy", "any", "truncated"],
)


@KINDS
def test_only_allowed_tokens_come(values: dict[str, float]) -> None:
    allowed = (4, 7, 9, 9, 1000)
    output = generate(Sampling(max_tokens=99, seed=5, allowed_token_ids=allowed, **values))
    assert set(output) == {4, 7, 9}


@KINDS
def test_a_bias_and_penalties_do_not_bring_back_what_is_not_allowed(values: dict[str, float]) -> None:
    sampling = Sampling(
        max_tokens=99,
        allowed_token_ids=(4, 7),
        bad_words=((7,),),
        logit_bias={7: 100.0, 8: 100.0},
        repetition_penalty=1.5,
        frequency_penalty=-2.0,
        **values,
    )
    assert set(generate(sampling)) == {4}


@KINDS
def test_a_banned_token_never_comes(values: dict[str, float]) -> None:
    free = Sampling(max_tokens=99, seed=5, **values)
    common = max(set(generate(free)), key=generate(free).count)
    assert common not in generate(Sampling(max_tokens=99, seed=5, bad_words=((common,),), **values))


@pytest.mark.parametrize("resume_at", [None, 2, 3, 17])
def test_a_word_of_several_tokens_never_comes_whole(resume_at: int | None) -> None:
    free = generate(Sampling(max_tokens=99, seed=5, allowed_token_ids=(4, 7, 9)))
    words = ((4, 7, 4), (7, 7))
    assert any(free[at : at + 3] == [4, 7, 4] for at in range(40))
    assert any(free[at : at + 2] == [7, 7] for at in range(40))
    bound = generate(Sampling(max_tokens=99, seed=5, allowed_token_ids=(4, 7, 9), bad_words=words), resume_at=resume_at)
    assert not any(bound[at : at + 3] == [4, 7, 4] for at in range(40))
    assert not any(bound[at : at + 2] == [7, 7] for at in range(40))
    assert {4, 7, 9} == set(bound)
    assert bound == generate(Sampling(max_tokens=99, seed=5, allowed_token_ids=(4, 7, 9), bad_words=words))


def test_the_parts_of_a_bad_word_are_free_by_themselves() -> None:
    output = generate(Sampling(max_tokens=99, seed=5, allowed_token_ids=(4, 7, 9), bad_words=((4, 9),)))
    assert set(output) == {4, 7, 9}


def test_rows_without_limits_are_untouched() -> None:
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(1))
    free = Sampling(max_tokens=9, seed=3)
    sampler = Sampler(VOCAB, 3, CPU)
    for slot, sampling in enumerate((free, Sampling(max_tokens=9, allowed_token_ids=(5,)), free)):
        sampler.admit(slot, sampling, [], [], EOS)
    before = logits.clone()
    tokens = sampler.sample(logits, [0, 1, 2], [0, 0, 0]).token_ids.tolist()
    alone = Sampler(VOCAB, 1, CPU)
    alone.admit(0, free, [], [], EOS)
    assert tokens == [int(alone.sample(logits[[row]], [0], [0]).token_ids) if row != 1 else 5 for row in range(3)]
    assert torch.equal(logits, before)


def test_a_slot_forgets_the_limits_of_its_last_request() -> None:
    sampler = Sampler(VOCAB, 1, CPU)
    logits = torch.zeros(1, VOCAB)
    logits[0, 8] = 5
    for limits, expected in (({"allowed_token_ids": (2,)}, 2), ({"bad_words": ((8,),)}, 0), ({}, 8)):
        sampler.admit(0, Sampling(max_tokens=9, temperature=0.0, **limits), [], [], EOS)
        assert sampler.sample(logits, [0], [0]).token_ids.tolist() == [expected]


def test_a_row_that_may_generate_nothing_is_reported() -> None:
    sampler = Sampler(VOCAB, 1, CPU)
    sampler.admit(0, Sampling(max_tokens=9, allowed_token_ids=(2,), bad_words=((2,),)), [], [], EOS)
    assert not sampler.sample(torch.zeros(1, VOCAB), [0], [0]).finite.item()


def test_logprobs_are_those_of_the_model() -> None:
    sampler = Sampler(VOCAB, 1, CPU)
    sampler.admit(0, Sampling(max_tokens=9, allowed_token_ids=(2,), logprobs=0), [], [], EOS)
    sampled = sampler.sample(torch.zeros(1, VOCAB), [0], [0])
    assert sampled.logprobs is not None
    [entry] = sampled.logprobs.unpack()
    assert entry.logprob == pytest.approx(-torch.tensor(float(VOCAB)).log().item())
