"""The demo model gives, token for token, what transformers' ``generate`` gives, however its requests are scheduled.

Both sides get the same token ids and compute in float32. The reference answers are computed once: ids by ``generate``,
log-probabilities by one pass over prompt and answer.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM

from pagewire.engine import build
from pagewire.engine.config import read_config
from pagewire.engine.models.files import resolve_model
from pagewire.engine.models.loader import load_model
from pagewire.frontend.template import load_chat_template
from pagewire.protocol.messages import Limits, Logprob, Model, Sampling
from tests.engine.driving import Answer, Driver

NEW_TOKENS = 18
# Threads that wait for each other would make this many times slower wherever the cores are shared.
THREADS = 1
GREEDY = Sampling(max_tokens=NEW_TOKENS, temperature=0.0, logprobs=3)
TOLERANCE = 1e-4

TEXTS = [
    "Once",
    "The capital of France is",
    "Water boils at a temperature of",
    "def fibonacci(n):\n    ",
    "In 1969, the first human",
    "import numpy as np\n\nx = np.",
    "My favourite recipe needs flour, eggs,",
    "The quick brown fox jumps over the lazy dog. The quick brown fox",
    "Größe und Gewicht: der Bär im Wald",
    "今日は天気が",
    "1, 2, 3, 4, 5, 6, 7,",
    "<html>\n  <head>\n    <title>",
    "The history of the bicycle begins in the early nineteenth century, when a German baron built a machine with two "
    "wheels in line and a handlebar to steer it. Riders pushed themselves along with their feet on the ground. It was",
    "She opened the door and said: 'What",
]
CHATS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": "Hello! Who are you?"}],
    [{"role": "user", "content": "What is 2 + 2?"}],
    [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "Where is the treasure?"}],
    [{"role": "user", "content": "Name three colours."}],
    [
        {"role": "user", "content": "I have a cat named Tom."},
        {"role": "assistant", "content": "What a lovely name for a cat!"},
        {"role": "user", "content": "What is the name of my cat?"},
    ],
    [{"role": "user", "content": "Write a haiku about the sea."}],
    [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "Is the sky blue? 🙂"}],
    [{"role": "user", "content": "Translate to French: good morning"}],
]


@dataclass(frozen=True)
class Expected:
    """What transformers says: the new ids, and log-probabilities [len(prompt) + len(ids) - 1, vocab]."""

    prompt: list[int]
    ids: list[int]
    logprobs: Tensor

    def check(self, answer: Answer) -> None:
        """Ids are the same; the log-probability of each, and of the alternatives, nearly so."""
        assert answer.ids == self.ids
        self._check_entries(answer.logprobs, self.ids, self.logprobs[len(self.prompt) - 1 :])

    def check_prompt(self, entries: Sequence[Logprob | None]) -> None:
        assert entries[0] is None
        told = [entry for entry in entries if entry is not None]
        self._check_entries(told, self.prompt[1:], self.logprobs[: len(self.prompt) - 1])

    def _check_entries(self, entries: Sequence[Logprob], ids: Sequence[int], rows: Tensor) -> None:
        assert [entry.id for entry in entries] == list(ids)
        for entry, row in zip(entries, rows, strict=True):
            told = {entry.id: entry.logprob} | {top.id: top.logprob for top in entry.top}
            assert told == pytest.approx({token: row[token].item() for token in told}, abs=TOLERANCE)
            assert [top.logprob for top in entry.top] == pytest.approx(row.topk(len(entry.top)).values, abs=TOLERANCE)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)
    torch.set_grad_enabled(True)


@pytest.fixture(scope="module", autouse=True)
def load_once() -> Iterator[None]:
    """Every engine here has the same weights; loading them takes longer than most tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "load_model", functools.cache(load_model))
        yield


def make_engine(*options: str) -> tuple[Driver, Model, Limits]:
    engine = build.build_engine(
        read_config(
            ["demo", "--dtype", "float32", "--device", "cpu", "--threads", str(THREADS), "--no-warmup", *options]
        )
    )
    return Driver(engine.core), engine.model, engine.limits


def make_driver(*options: str) -> Driver:
    return make_engine("--num-kv-blocks", "256", *options)[0]


@pytest.fixture(scope="module")
def expected() -> list[Expected]:
    """The prompts as our tokenizer and template make them, and what transformers answers."""
    _, model, _ = make_engine("--num-kv-blocks", "16")
    return ask_transformers(tokenize(model))


@pytest.fixture(scope="module")
def prompts(expected: list[Expected]) -> list[list[int]]:
    return [entry.prompt for entry in expected]


def tokenize(model: Model) -> list[list[int]]:
    tokenizer = Tokenizer.from_str(model.tokenizer_json)
    template = load_chat_template(None, model.chat_templates, model.special_tokens)
    assert template is not None
    rendered = [template.render(chat, add_generation_prompt=True, continue_final_message=False) for chat in CHATS]
    prompts = [tokenizer.encode(text).ids for text in TEXTS]
    return prompts + [tokenizer.encode(text, add_special_tokens=False).ids for text in rendered]


def ask_transformers(prompts: list[list[int]]) -> list[Expected]:
    """All prompts in one batch, padded on the left to generate and on the right to compute log-probabilities."""
    files = resolve_model("demo")
    assert files.gguf is not None
    reference = AutoModelForCausalLM.from_pretrained(files.directory, gguf_file=files.gguf.name, dtype=torch.float32)
    eos = reference.config.eos_token_id
    longest = max(map(len, prompts))
    padded = torch.tensor([[eos] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with torch.inference_mode():
        generated = reference.generate(
            padded, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=eos
        )[:, longest:].tolist()
        answers = [ids[: ids.index(eos) + 1] if eos in ids else ids for ids in generated]
        wholes = [prompt + ids for prompt, ids in zip(prompts, answers, strict=True)]
        return [
            Expected(prompt, ids, reference(torch.tensor([whole[:-1]])).logits[0].log_softmax(-1))
            for prompt, ids, whole in zip(prompts, answers, wholes, strict=True)
        ]


def check_all(expected: list[Expected], answers: list[Answer]) -> None:
    for entry, answer in zip(expected, answers, strict=True):
        entry.check(answer)


def test_each_prompt_alone_gets_the_answer_of_transformers(expected: list[Expected]) -> None:
    assert len(expected) >= 20
    driver = make_driver("--no-enable-prefix-caching")
    check_all(expected, [driver.answer(entry.prompt, GREEDY) for entry in expected])


def test_all_prompts_together_get_the_same_answers_and_again_from_a_warm_cache(
    expected: list[Expected], prompts: list[list[int]]
) -> None:
    driver = make_driver()
    cold, warm = driver.answer_all(prompts, GREEDY), driver.answer_all(prompts, GREEDY)
    check_all(expected, cold)
    check_all(expected, warm)
    assert all(answer.finish.usage.cached > 0 for answer in warm if answer.finish.usage.prompt > 16)


def test_a_pool_so_small_that_requests_are_preempted_changes_nothing(
    expected: list[Expected], prompts: list[list[int]]
) -> None:
    driver, _, _ = make_engine("--num-kv-blocks", "14")
    answers = driver.answer_all(prompts, GREEDY)
    assert sum(answer.finish.usage.preempted for answer in answers) > 0
    check_all(expected, answers)


def test_chunks_of_seven_tokens_change_nothing(expected: list[Expected], prompts: list[list[int]]) -> None:
    check_all(expected, make_driver("--max-num-batched-tokens", "7").answer_all(prompts, GREEDY))


def test_prompt_tokens_have_the_log_probabilities_of_transformers(
    expected: list[Expected], prompts: list[list[int]]
) -> None:
    sampling = Sampling(max_tokens=0, temperature=0.0, prompt_logprobs=3)
    answers = make_driver("--max-num-batched-tokens", "50").answer_all(prompts, sampling)
    for entry, answer in zip(expected, answers, strict=True):
        entry.check_prompt(answer.prompt_logprobs)
