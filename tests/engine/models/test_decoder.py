"""The native decoder computes what transformers computes, however a sequence is batched and cut into steps."""

import random
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from pagewire.engine.models import decoder
from pagewire.engine.models.base import Model
from pagewire.engine.models.files import resolve_model
from pagewire.engine.models.loader import load_model
from tests.engine.models import paged, tiny

NEW_TOKENS = 10
LENGTHS = (1, 5, 16, 23, 40)


@dataclass(frozen=True)
class Pair:
    model: Model
    prompts: list[list[int]]
    answers: list[tiny.Answer]

    def check(self, sequences: list[paged.Sequence]) -> None:
        for sequence, answer in zip(sequences, self.answers, strict=True):
            assert sequence.ids == answer.ids
            torch.testing.assert_close(torch.stack(sequence.logits), answer.logits, rtol=0, atol=1e-4)


@pytest.fixture(scope="module", params=list(tiny.CONFIGS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    reference = tiny.make_reference(tiny.CONFIGS[request.param])
    directory = tiny.save(reference, tmp_path_factory.mktemp("model"))
    model = load_model(resolve_model(str(directory)), "auto", torch.device("cpu"))
    model.allocate_kv(paged.NUM_BLOCKS)
    draw = random.Random(1)
    prompts = [[draw.randrange(tiny.VOCAB_SIZE) for _ in range(length)] for length in LENGTHS]
    return Pair(model, prompts, [tiny.answer(reference, prompt, NEW_TOKENS) for prompt in prompts])


def test_each_prompt_alone_gives_the_tokens_and_logits_of_transformers(pair: Pair) -> None:
    pair.check([paged.generate(pair.model, [prompt], NEW_TOKENS)[0] for prompt in pair.prompts])


def test_prompts_of_different_lengths_together_give_the_same(pair: Pair) -> None:
    pair.check(paged.generate(pair.model, pair.prompts, NEW_TOKENS))


def test_prompts_in_chunks_mixed_with_decoding_give_the_same(pair: Pair) -> None:
    pair.check(paged.generate(pair.model, pair.prompts, NEW_TOKENS, chunk=7))


@pytest.fixture
def small_model(tmp_path: Path) -> Model:
    directory = tiny.save(tiny.make_reference(tiny.CONFIGS["qwen2"]), tmp_path)
    model = load_model(resolve_model(str(directory)), "bfloat16", torch.device("cpu"))
    model.allocate_kv(paged.NUM_BLOCKS)
    return model


def test_logits_are_float32_and_only_of_the_tokens_asked_for(small_model: Model) -> None:
    batch = paged.make_batch([([1, 2, 3], 0, [5]), ([4, 5], 0, [9])])
    every = small_model.forward(batch)

    wanted = small_model.forward(replace(batch, logit_indices=torch.tensor([2, 4])))

    assert every.dtype is torch.float32
    assert wanted.shape == (2, small_model.vocab_size)
    torch.testing.assert_close(wanted, every[[2, 4]])


def test_logits_made_in_parts_are_the_same(small_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = paged.make_batch([([1, 2, 3], 0, [5]), ([4, 5], 0, [9])])
    whole = small_model.forward(batch)
    monkeypatch.setattr(decoder, "MAX_LOGIT_ROWS", 2)
    in_parts = small_model.forward(batch)
    assert in_parts.dtype is torch.float32
    torch.testing.assert_close(in_parts, whole)


def test_a_block_costs_keys_and_values_of_sixteen_tokens_in_every_layer(small_model: Model) -> None:
    heads, head_dim, layers, bytes_each = 2, 8, 3, 2

    assert small_model.kv_bytes_per_block() == 2 * 16 * heads * head_dim * layers * bytes_each
