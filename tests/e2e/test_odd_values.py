"""Values at and beyond every border, sent to the real programs: each is answered or refused, and nothing breaks."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.e2e.programs import Frontend
from tests.tiny_chat_model import NAME

# What a client might send for a sampling field. JSON's escapes may even write half of a character.
ODD: list[tuple[str, Any]] = [
    ("temperature", 1e-320),
    ("temperature", 1e-6),
    ("temperature", 2),
    ("temperature", 1e300),
    ("top_p", 1e-300),
    ("top_p", 0),
    ("top_k", 2**31),
    ("top_k", 2**70),
    ("top_k", -1),
    ("min_p", 1),
    ("presence_penalty", -2),
    ("repetition_penalty", 1e-30),
    ("repetition_penalty", 1e30),
    ("logit_bias", {"0": -100, "258": 100}),
    ("logit_bias", {"259": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {str(2**70): 1}),
    ("logit_bias", {"65": 1e300}),
    ("logit_bias", {str(token): -100 for token in range(259)}),
    ("seed", -1),
    ("seed", 2**63 - 1),
    ("seed", 2**64),
    ("seed", 2**70),
    ("max_tokens", 2**70),
    ("max_tokens", 0),
    ("min_tokens", 2**40),
    ("stop", [""]),
    ("stop", "\ud800"),
    ("stop", "x" * 100_000),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", [2**70]),
    ("stop_token_ids", [65] * 10_000),
    ("logprobs", 2**40),
    ("prompt_logprobs", 20),
    ("priority", 2**70),
    ("priority", -(2**63)),
    ("cache_salt", "\ud800"),
    ("cache_salt", "x" * 100_000),
    ("n", 2**40),
    ("user", "\udfff"),
    ("prompt", "\ud800 half a character"),
    ("prompt", ""),
    ("prompt", []),
    ("prompt", [[]]),
    ("prompt", [2**70]),
    ("prompt", [-1]),
    ("prompt", "\0"),
    ("prompt", "\U0010ffff" * 10),
    ("model", "\ud800"),
]


def complete(frontend: Frontend, **fields: Any) -> tuple[int, Any]:
    body = {"model": NAME, "prompt": "Hi", "max_tokens": 4, **fields}
    request = urllib.request.Request(
        f"{frontend.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize(("field", "value"), ODD, ids=[f"{field}-{number}" for number, (field, _) in enumerate(ODD)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_odd_value_is_answered_or_refused(frontend: Frontend, field: str, value: Any, temperature: float) -> None:
    status, answer = complete(frontend, **{"temperature": temperature, field: value})
    assert status in (200, 400, 404), answer
    if status == 200:
        assert all(choice["finish_reason"] in ("stop", "length") for choice in answer["choices"])
    else:
        assert {"message", "type", "param", "code"} == set(answer["error"])


def test_after_all_that_the_server_still_serves(frontend: Frontend) -> None:
    status, answer = complete(frontend, temperature=0, ignore_eos=True)
    assert (status, answer["usage"]["completion_tokens"]) == (200, 4)
    frontend.wait_until_idle()
