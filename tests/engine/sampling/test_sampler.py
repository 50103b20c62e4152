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
