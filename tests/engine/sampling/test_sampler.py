import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pagewire.engine.sampling.sampler import Sampler
from pagewire.protocol.messages import Sampling
from tests.engine.sampling import reference

CPU = torch.device("cpu")
EOS = (3,)


def make_logits(rows: int, vocab: int, seed: int = 0, spread: float = 3.0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * spread


def one(logits: Tensor, sampling: Sampling, position: int = 0, **history: list[int]) -> int:
    """Sample a single row with a fresh sampler."""
    sampler = Sampler(len(logits), 1, CPU)
    sampler.admit(0, sampling, history.get("prompt", []), history.get("output", []), EOS)
    return int(sampler.sample(logits[None], [0], [position]).token_ids[0])


@st.composite
def samplings(draw: st.DrawFn, vocab: int) -> Sampling:
    token = st.integers(0, vocab - 1)
    return Sampling(
        max_tokens=99,
        min_tokens=draw(st.sampled_from([0, 0, 2, 5])),
        temperature=draw(st.sampled_from([0.0, 1e-7, 1e-4, 0.3, 0.7, 1.0, 1.7, 50.0])),
        top_p=draw(st.sampled_from([0.0, 1e-6, 0.2, 0.9, 0.99, 1.0, 1.0])),
        top_k=draw(st.sampled_from([0, 0, -1, 1, 2, 7, 40, 10_000])),
        min_p=draw(st.sampled_from([0.0, 0.0, 0.02, 0.3, 1.0])),
        presence_penalty=draw(st.sampled_from([0.0, 0.0, -1.5, 2.0])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.0, -0.5, 1.0])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.0, 0.8, 1.3])),
        seed=draw(st.integers(-(2**63), 2**64 - 1)),
        logit_bias=draw(st.dictionaries(token, st.floats(-100, 100, width=32), max_size=3)),
        stop_token_ids=tuple(draw(st.lists(token, max_size=2))),
        ignore_eos=draw(st.booleans()),
    )


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, list[tuple[Sampling, list[int], list[int]]]]:
    vocab = draw(st.sampled_from([17, 64, 1000]))
    tokens = st.lists(st.integers(0, vocab - 1), max_size=12)
    requests = draw(st.lists(st.tuples(samplings(vocab), tokens, tokens), min_size=1, max_size=8))
    spread = draw(st.sampled_from([0.1, 3.0, 20.0]))
    logits = make_logits(len(requests), vocab, draw(st.integers(0, 1000)), spread)
    return logits, requests


@settings(max_examples=150, deadline=None, derandomize=True)
@given(batches())
def test_every_row_of_any_mix_is_what_the_definition_says(
    batch: tuple[Tensor, list[tuple[Sampling, list[int], list[int]]]],
) -> None:
    logits, requests = batch
    sampler = Sampler(logits.shape[1], len(requests), CPU)
    for slot, (sampling, prompt, output) in enumerate(requests):
        sampler.admit(slot, sampling, prompt, output, EOS)
    positions = [len(output) for _, _, output in requests]
    before = logits.clone()
    sampled = sampler.sample(logits, range(len(requests)), positions)
    assert sampled.finite.all()
    assert torch.equal(logits, before)
    for row, (sampling, prompt, output) in enumerate(requests):
        wanted = reference.adjusted(logits[row].double().numpy(), sampling, prompt, output, EOS)
        assert sampled.token_ids[row] == reference.choose(wanted, sampling, len(output))


MIX = [
    Sampling(99, temperature=0.0),
    Sampling(99, temperature=0.8, seed=5),
    Sampling(99, temperature=1.0, top_p=0.9, seed=6),
    Sampling(99, temperature=1.3, top_k=20, seed=7),
    Sampling(99, temperature=0.9, top_k=50, top_p=0.8, min_p=0.01, seed=8),
    Sampling(99, temperature=1.0, min_p=0.05, seed=9),
    Sampling(99, temperature=0.0, repetition_penalty=1.2, frequency_penalty=0.3),
    Sampling(99, temperature=2.0, presence_penalty=0.5, logit_bias={4: 3.0}, seed=-1),
    Sampling(99, temperature=0.7, top_p=0.99, seed=10, logprobs=3),
    Sampling(99, temperature=1.0, top_k=1050, top_p=0.95, seed=11),
]


def sample_mix(logits: Tensor, order: list[int], slots: list[int]) -> list[int]:
    """Tokens of the mix's requests (in their own order) when they are batched in ``order`` and live in ``slots``."""
    sampler = Sampler(logits.shape[1], 64, CPU)
    for request in order:
        sampler.admit(slots[request], MIX[request % len(MIX)], [1, 2], [3, 4, 4], EOS)
    batch = sampler.sample(logits[order], [slots[request] for request in order], [request + 3 for request in order])
    tokens = dict(zip(order, batch.token_ids.tolist(), strict=True))
    return [tokens[request] for request in sorted(order)]


@pytest.mark.parametrize("vocab", [1001, 49152])
def test_a_row_does_not_depend_on_batch_order_or_slot(vocab: int) -> None:
    requests = list(range(2 * len(MIX)))
    logits = make_logits(len(requests), vocab, spread=2.0)
    shuffled = random.Random(1).sample(requests, len(requests))
    slots = random.Random(2).sample(range(64), len(requests))
    alone = [sample_mix(logits, [request], slots)[0] for request in requests]
    assert sample_mix(logits, requests, requests) == alone
    assert sample_mix(logits, shuffled, slots) == alone


def test_seed_and_position_change_a_draw_and_nothing_else_does() -> None:
    logits = make_logits(1, 5000, spread=1.0)[0]
    draws = {(seed, position): one(logits, Sampling(9, seed=seed), position) for seed in (0, 1) for position in (0, 1)}
    assert len(set(draws.values())) == 4
    assert one(logits, Sampling(500, seed=1, stop=("x",)), 1) == draws[1, 1]


def test_a_tiny_temperature_is_greedy_and_ties_go_to_the_lowest_id() -> None:
    logits = torch.zeros(50)
    logits[[7, 9, 30]] = 5.0
    greedy = [
        Sampling(9, temperature=0.0),
        Sampling(9, temperature=1e-7, seed=3),
        Sampling(9, temperature=1.0, top_k=1, seed=4),
        Sampling(9, temperature=1.0, top_p=0.0, seed=5),
    ]
    assert [one(logits, sampling) for sampling in greedy] == [7, 7, 7, 7]


def test_top_k_keeps_exactly_k_of_equal_logits() -> None:
    logits = torch.zeros(50)
    drawn = {one(logits, Sampling(9, top_k=3, seed=seed)) for seed in range(60)}
    assert drawn == {0, 1, 2}


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_stop_tokens_wait_for_min_tokens(ignore_eos: bool) -> None:
    logits = torch.zeros(20)
    logits[[3, 8, 1]] = torch.tensor([30.0, 20.0, 10.0])
    sampling = Sampling(9, temperature=0.0, min_tokens=2, stop_token_ids=(8,), ignore_eos=ignore_eos)
    eos = EOS[0]
    assert [one(logits, sampling, position) for position in range(4)] == [eos if ignore_eos else 1] * 2 + [eos] * 2


def test_a_bias_does_not_lift_a_stop_token_before_min_tokens() -> None:
    sampling = Sampling(9, temperature=0.0, min_tokens=1, logit_bias={3: 100.0})
    assert one(make_logits(1, 20)[0], sampling) != 3
    assert one(make_logits(1, 20)[0], sampling, position=1) == 3


def test_a_bias_on_unknown_ids_is_ignored() -> None:
    assert one(torch.arange(10.0), Sampling(9, temperature=0.0, logit_bias={-1: 100.0, 10: 100.0, 2: 100.0})) == 2


def test_penalties_follow_the_tokens_that_are_appended() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.5, 0.0]]).repeat(2, 1)
    sampler = Sampler(4, 2, CPU)
    sampler.admit(0, Sampling(9, temperature=0.0, frequency_penalty=0.4), [1, 1, 1], [], ())
    sampler.admit(1, Sampling(9, temperature=0.0), [], [], ())
    drawn = []
    for position in range(5):
        token_ids = sampler.sample(logits, [0, 1], [position, position]).token_ids.tolist()
        sampler.append([0, 1], token_ids)
        drawn.append(token_ids)
    assert drawn == [[1, 1], [1, 1], [2, 1], [1, 1], [2, 1]]


def test_a_slot_forgets_its_former_request() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.0]])
    sampler = Sampler(3, 1, CPU)
    sampler.admit(
        0, Sampling(9, temperature=0.0, presence_penalty=2.0, logit_bias={0: 50.0}, min_tokens=5), [], [1], (1,)
    )
    sampler.admit(0, Sampling(9, temperature=0.0), [], [], (1,))
    assert sampler.sample(logits, [0], [0]).token_ids.tolist() == [1]


def test_readmission_after_preemption_counts_earlier_output() -> None:
    logits = torch.tensor([0.0, 3.0, 2.0])
    sampling = Sampling(9, temperature=0.0, presence_penalty=2.0)
    assert one(logits, sampling, position=1, output=[1]) == 2
    assert one(logits, sampling, position=0, prompt=[1]) == 1


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 5, 999])
def test_a_broken_row_is_reported_and_harms_no_other(broken: float, place: int) -> None:
    logits = make_logits(len(MIX), 1000)
    sampler = Sampler(1000, len(MIX), CPU)
    for slot, sampling in enumerate(MIX):
        sampler.admit(slot, sampling, [], [], EOS)
    rows = range(len(MIX))
    expected = sampler.sample(logits, rows, [0] * len(MIX)).token_ids
    for row in rows:
        damaged = logits.clone()
        damaged[row, place] = broken
        sampled = sampler.sample(damaged, rows, [0] * len(MIX))
        assert sampled.finite.tolist() == [other != row for other in rows]
        others = torch.arange(len(MIX)) != row
        assert torch.equal(sampled.token_ids[others], expected[others])
        assert 0 <= sampled.token_ids[row] < 1000


def test_a_row_without_any_possible_token_is_reported() -> None:
    sampler = Sampler(10, len(MIX), CPU)
    for slot, sampling in enumerate(MIX):
        sampler.admit(slot, sampling, [], [], EOS)
    sampled = sampler.sample(torch.full((len(MIX), 10), -math.inf), range(len(MIX)), [0] * len(MIX))
    assert not sampled.finite.any()


def test_the_only_possible_token_is_drawn() -> None:
    logits = torch.full((10,), -math.inf)
    logits[6] = -3.0
    assert {one(logits, sampling) for sampling in MIX if not sampling.logit_bias} == {6}


def test_log_probabilities_are_those_of_the_untouched_logits() -> None:
    logits = make_logits(4, 300)
    sampler = Sampler(300, 4, CPU)
    wanted = [None, 2, 0, 5]
    for slot, num_top in enumerate(wanted):
        sampler.admit(slot, Sampling(9, temperature=0.5, logit_bias={11: 100.0}, logprobs=num_top), [], [], EOS)
    sampled = sampler.sample(logits, range(4), [0] * 4)
    assert sampled.logprob_rows == (1, 2, 3)
    assert sampled.logprobs is not None
    exact = logits.double().log_softmax(-1)
    for row, got in zip(sampled.logprob_rows, sampled.logprobs.unpack(), strict=True):
        assert sampled.token_ids[row] == 11
        assert got.logprob == pytest.approx(float(exact[row, 11]), abs=1e-5)
        assert got.rank == 1 + int((exact[row] > exact[row, 11]).sum())
        best = exact[row].topk(wanted[row] or 0)
        assert [token_id for token_id, _ in got.top] == best.indices.tolist()
        assert [value for _, value in got.top] == pytest.approx(best.values.tolist(), abs=1e-5)
