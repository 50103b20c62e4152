import json
import math

import pytest
import torch

from pagewire.engine.sampling.logprobs import prompt_logprobs, token_logprobs
from pagewire.protocol.messages import LOGPROB_FLOOR


def test_prompt_tokens_get_the_log_probability_of_their_row() -> None:
    logits = torch.randn(700, 500, generator=torch.Generator().manual_seed(0))
    token_ids = torch.arange(700) % 500
    exact = logits.double().log_softmax(-1)
    entries = prompt_logprobs(logits, token_ids, 2).unpack()
    assert len(entries) == 700
    assert [entry.logprob for entry in entries] == pytest.approx(
        exact.gather(1, token_ids[:, None])[:, 0].tolist(), abs=1e-5
    )
    assert [[i for i, _ in entry.top] for entry in entries] == exact.topk(2).indices.tolist()


def test_equal_logits_are_listed_by_rising_id_and_share_a_rank() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0]])
    (entry,) = token_logprobs(logits, torch.tensor([3]), [4]).unpack()
    assert entry.rank == 1
    assert [token_id for token_id, _ in entry.top] == [1, 3, 2, 4]


def test_more_alternatives_than_tokens_are_all_tokens() -> None:
    (entry,) = token_logprobs(torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([0]), [20]).unpack()
    assert [token_id for token_id, _ in entry.top] == [1, 0, 2]


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_values_are_always_finite(broken: float) -> None:
    logits = torch.tensor([[1.0, broken, 0.0, 2.0], [broken] * 4])
    entries = token_logprobs(logits, torch.tensor([1, 0]), [4, 4]).unpack()
    values = [value for entry in entries for value in (entry.logprob, *(logprob for _, logprob in entry.top))]
    assert all(LOGPROB_FLOOR <= value <= 0.0 for value in values)
    json.dumps(values, allow_nan=False)
