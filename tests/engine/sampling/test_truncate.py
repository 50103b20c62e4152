import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pagewire.engine.sampling.truncate import Limits, kept_tokens, largest_tokens
from pagewire.protocol.messages import Sampling
from tests.engine.sampling import reference


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    limits=st.lists(
        st.tuples(
            st.sampled_from([0.1, 0.7, 1.0, 3.0]),
            st.sampled_from([0, 2, 5, 100, 499]),
            st.sampled_from([1e-9, 0.3, 0.9, 0.999, 1.0]),
            st.sampled_from([0.0, 0.001, 0.2, 1.0]),
        ),
        min_size=1,
        max_size=6,
    ),
    seed=st.integers(0, 100),
    coarse=st.booleans(),
)
def test_what_is_kept_is_what_the_definition_keeps(
    limits: list[tuple[float, int, float, float]], seed: int, coarse: bool
) -> None:
    logits = torch.randn(len(limits), 500, generator=torch.Generator().manual_seed(seed)) * 4
    if coarse:
        logits = logits.bfloat16().float()  # many equal logits
    columns = [np.array(column) for column in zip(*limits, strict=True)]
    candidates = kept_tokens(logits, logits.amax(-1, keepdim=True), Limits(*columns))
    for row, (temperature, top_k, top_p, min_p) in enumerate(limits):
        sampling = Sampling(9, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
        expected = reference.kept(logits[row].double().numpy(), sampling)
        assert candidates.token_ids[candidates.rows == row].tolist() == expected


@pytest.mark.parametrize("count", [1, 5, 20, 333, 1100, 1500])
@pytest.mark.parametrize("coarse", [False, True])
def test_the_largest_logits_are_found_in_order(count: int, coarse: bool) -> None:
    logits = torch.randn(7, 1500, generator=torch.Generator().manual_seed(count))
    if coarse:
        logits = logits.bfloat16().float()
    expected = logits.sort(dim=-1, descending=True, stable=True).indices[:, :count]
    assert largest_tokens(logits, count).tolist() == expected.tolist()
