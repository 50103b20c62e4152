"""``lm_eval`` measures the served model as it is: its scores are those that transformers computes.

Both sides compute in float32. The task is to tell how sentences of the shipped prose go on.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.driving import Report, command_of, drive
from tests.clients.environments import DRIVERS
from tests.e2e.programs import Deployment, Frontend

pytestmark = pytest.mark.clients

MODEL = "smollm2-135m-instruct"
PROSE = Path(__file__).parents[2] / "bench" / "data" / "prose.txt"
NUM_DOCUMENTS, CONTEXT_WORDS, CHOICE_WORDS = 6, 24, 5
# How far into the prose the wrong choice of a document is found.
ELSEWHERE_WORDS = 1000
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a river."}]
MAX_TOKENS, UNTIL = 16, ["."]
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    words = PROSE.read_text(encoding="utf-8").split()

    def passage(start: int, length: int) -> str:
        return " ".join(words[start : start + length])

    starts = range(0, NUM_DOCUMENTS * (CONTEXT_WORDS + CHOICE_WORDS), CONTEXT_WORDS + CHOICE_WORDS)
    return [
        {
            "context": passage(start, CONTEXT_WORDS),
            "choices": [passage(start + CONTEXT_WORDS + away, CHOICE_WORDS) for away in (0, ELSEWHERE_WORDS)],
        }
        for start in starts
    ]


@pytest.fixture(scope="module")
def frontend() -> Iterator[Frontend]:
    with Deployment.running() as deployment:
        deployment.start_engine("demo", "--dtype", "float32", "--num-kv-blocks", "256")
        frontend = deployment.start_frontend()
        frontend.wait_until_ready()
        yield frontend


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The demo model's, as transformers reads it from the GGUF file, and saved where ``name_or_path`` says."""
    from transformers import AutoTokenizer

    from pagewire.engine.models.files import resolve_model

    files = resolve_model("demo")
    assert files.gguf is not None
    read = AutoTokenizer.from_pretrained(files.directory, gguf_file=files.gguf.name)
    directory = tmp_path_factory.mktemp("tokenizer")
    read.save_pretrained(directory)
    return AutoTokenizer.from_pretrained(directory)


@pytest.fixture(scope="module")
def report(
    frontend: Frontend, tokenizer: Any, documents: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Report:
    scratch = tmp_path_factory.mktemp("lm_eval")
    file = scratch / "documents.json"
    file.write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
    task = {
        "base_url": f"{frontend.url}/v1",
        "model": MODEL,
        "documents": str(file),
        "messages": MESSAGES,
        "tokenizer": tokenizer.name_or_path,
        "cache": str(scratch / "cache"),
        "max_tokens": MAX_TOKENS,
        "until": UNTIL,
    }
    return drive(command_of(DRIVERS / "drive_lm_eval.py", "lm_eval", above_ours=True), task)


@pytest.fixture(scope="module")
def scores(tokenizer: Any, documents: list[dict[str, Any]]) -> list[list[tuple[float, bool]]]:
    """For each choice of each document its log-likelihood by transformers, and whether it is the likeliest text."""
    import torch
    from transformers import AutoModelForCausalLM

    from pagewire.engine.models.files import resolve_model

    files = resolve_model("demo")
    assert files.gguf is not None
    model = AutoModelForCausalLM.from_pretrained(files.directory, gguf_file=files.gguf.name, dtype=torch.float32)

    def score(context: str, choice: str) -> tuple[float, bool]:
        known = len(tokenizer.encode(context))
        ids = torch.tensor(tokenizer.encode(f"{context} {choice}"))
        with torch.inference_mode():
            rows = model(ids[None, :-1]).logits[0, known - 1 :].log_softmax(-1)
        told = rows.gather(1, ids[known:, None])
        return told.sum().item(), bool((rows.argmax(-1) == ids[known:]).all())

    return [[score(document["context"], choice) for choice in document["choices"]] for document in documents]


@pytest.mark.parametrize("way", ["scores", "scores in batches", "scores with the server's tokenizer"])
def test_log_likelihoods_are_those_of_transformers(
    report: Report, scores: list[list[tuple[float, bool]]], way: str
) -> None:
    measured = report["others"][way]
    assert len(measured["answers"]) == NUM_DOCUMENTS
    for (told, greedy), (expected, expected_greedy) in zip(
        itertools.chain(*measured["answers"]), itertools.chain(*scores), strict=True
    ):
        assert told == pytest.approx(expected, abs=TOLERANCE)
        assert greedy == expected_greedy
    right = [choices[0] > choices[1] for choices in scores]
    assert measured["metrics"]["acc,none"] == pytest.approx(sum(right) / len(right))


def test_texts_are_those_that_the_server_gives_without_it(
    report: Report, frontend: Frontend, documents: list[dict[str, Any]]
) -> None:
    options: dict[str, Any] = {"model": MODEL, "max_tokens": MAX_TOKENS, "temperature": 0, "stop": UNTIL}
    with frontend.client() as client:
        for number, document in enumerate(documents):
            context = document["context"]
            completion = client.completions.create(prompt=context, **options).choices[0].text
            chat = client.chat.completions.create(messages=[{"role": "user", "content": context}], **options)
            assert report["others"]["texts of completions"]["answers"][number] == [completion]
            assert report["others"]["texts of chat"]["answers"][number] == [chat.choices[0].message.content]


def test_the_servers_tokenizer_is_that_of_transformers(report: Report, tokenizer: Any) -> None:
    told = report["others"]["the server's tokenizer"]
    assert told["found"]
    assert told["eos"] == [tokenizer.eos_token, tokenizer.eos_token_id]
    assert told["bos"] == [tokenizer.bos_token, tokenizer.bos_token_id]
    assert told["chat"] == tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=False)
