"""From a request's fields to the engine's sampling: limits of server and model, defaults, lengths, seeds."""

import json
from pathlib import Path
from typing import Any

import pytest

from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.openai.defaults import SamplingDefaults, sampling_defaults
from pagewire.protocol.messages import Sampling
from tests.fake_engine import FakeEngine, sampling_of, toy_model
from tests.frontend.running import Server, StartServer
from tests.toy_tokenizer import VOCAB_SIZE


async def test_every_sampling_field_reaches_the_engine(server: Server, engine: FakeEngine) -> None:
    fields: dict[str, Any] = {
        "max_tokens": 9,
        "min_tokens": 2,
        "temperature": 0.7,
        "top_p": 0.8,
        "top_k": 40,
        "min_p": 0.05,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.1,
        "seed": 42,
        "logit_bias": {"104": 100, "7": -1.5},
        "logprobs": True,
        "top_logprobs": 3,
        "prompt_logprobs": 2,
        "stop": ["a", "bc"],
        "stop_token_ids": [3, 4],
        "include_stop_str_in_output": True,
        "ignore_eos": True,
        "skip_special_tokens": False,
    }
    status, _ = await server.chat(**fields)
    assert status == 200
    assert sampling_of(engine) == Sampling(
        max_tokens=9,
        min_tokens=2,
        temperature=0.7,
        top_p=0.8,
        top_k=40,
        min_p=0.05,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.1,
        seed=42,
        logit_bias={104: 100.0, 7: -1.5},
        logprobs=3,
        prompt_logprobs=2,
        stop=("a", "bc"),
        stop_token_ids=(3, 4),
        include_stop=True,
        ignore_eos=True,
        skip_special_tokens=False,
    )


async def test_a_silent_request_gets_openais_defaults(server: Server, engine: FakeEngine) -> None:
    await server.complete(seed=0)
    assert sampling_of(engine) == Sampling(max_tokens=16)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"temperature": 1e-7}, {"temperature": 0.0}),
        ({"top_k": -1}, {"top_k": 0}),
        ({"top_k": VOCAB_SIZE}, {"top_k": 0}),
        ({"stop": "x"}, {"stop": ("x",)}),
        ({"stop": []}, {"stop": ()}),
        ({"seed": -1}, {"seed": 2**63 - 1}),
    ],
)
async def test_other_ways_to_say_the_same(
    server: Server, engine: FakeEngine, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    await server.complete(**fields)
    assert {name: getattr(sampling_of(engine), name) for name in expected} == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 129}, "n"),
        ({"n": 10**30}, "n"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": "x" * 2000}, "stop"),
        ({"stop_token_ids": [VOCAB_SIZE]}, "stop_token_ids[0]"),
        ({"stop_token_ids": [1] * 17}, "stop_token_ids"),
        ({"logit_bias": {str(VOCAB_SIZE): 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"abc": 1}}, "logit_bias"),
        ({"logit_bias": {"9" * 400: 1}}, "logit_bias"),
        ({"logit_bias": {"²": 1}}, "logit_bias"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream_options": {}, "stream": False}, "stream_options"),
        ({"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
async def test_limits_of_server_and_model_are_kept(
    server: Server, engine: FakeEngine, fields: dict[str, Any], param: str
) -> None:
    status, answer = await server.chat(**fields)
    assert status == 400
    assert answer["error"]["param"] == param
    assert engine.received == []


async def test_completions_bound_their_logprobs(server: Server) -> None:
    status, answer = await server.complete(logprobs=21)
    assert status == 400
    assert answer["error"]["param"] == "logprobs"


@pytest.mark.parametrize(("path", "part"), [("/v1/chat/completions", "messages"), ("/v1/completions", "prompt")])
async def test_what_does_not_fit_the_context_is_told_with_numbers(server: Server, path: str, part: str) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}]} if part == "messages" else {"prompt": "x" * 21}
    status, answer = await server.post(path, {**body, "max_tokens": 500})
    assert status == 400
    assert (answer["error"]["code"], answer["error"]["param"]) == ("context_length_exceeded", part)
    assert answer["error"]["message"].startswith(
        "This model's maximum context length is 512 tokens. However, you requested 521 tokens "
        f"(21 in the {part}, 500 in the completion)."
    )
    assert "prompt is too long" not in answer["error"]["message"]


@pytest.mark.parametrize("prompt", ["x" * 512, "x" * 5000, "x" * 200_000, [1] * 513, [[1] * 600]])
async def test_a_prompt_that_fills_the_context_is_refused(server: Server, engine: FakeEngine, prompt: Any) -> None:
    status, answer = await server.complete(prompt)
    assert status == 400
    assert answer["error"]["message"].startswith("This model's maximum context length is 512 tokens. However, ")
    assert "prompt is too long" in answer["error"]["message"]
    assert engine.received == []


async def test_a_prompt_that_fills_the_context_can_be_scored(server: Server) -> None:
    status, _ = await server.complete("x" * 512, max_tokens=0, echo=True, logprobs=0)
    assert status == 200


async def test_the_models_generation_config_sets_defaults(start_server: StartServer, engine: FakeEngine) -> None:
    engine.model = toy_model(generation_defaults={"temperature": 0.25, "top_k": 20, "max_new_tokens": 30})
    server = await start_server()
    await server.chat()
    await server.chat(temperature=1, top_k=0, max_tokens=5)
    first, second = (request.sampling for request in engine.received)
    assert (first.temperature, first.top_k, first.max_tokens) == (0.25, 20, 30)
    assert (second.temperature, second.top_k, second.max_tokens) == (1.0, 0, 5)


MODEL_VALUES = {"temperature": 0.25, "top_k": -1, "do_sample": True, "top_p": float("nan"), "eos_token_id": 2}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, SamplingDefaults(temperature=0.25)),
        ({"generation_config": "none"}, SamplingDefaults()),
        ({"generation_config": "vllm"}, SamplingDefaults()),
        ({"override_generation_config": {"temperature": 0.5}}, SamplingDefaults(temperature=0.5)),
        (
            {"generation_config": "none", "override_generation_config": {"max_new_tokens": 9}},
            SamplingDefaults(max_tokens=9),
        ),
    ],
)
def test_where_defaults_come_from(options: dict[str, Any], expected: SamplingDefaults) -> None:
    assert sampling_defaults(FrontendConfig(engine=("ipc:///tmp/e",), **options), MODEL_VALUES) == expected


def test_a_models_value_that_no_request_could_have_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    values = {"temperature": -1.0, "top_p": 0.5, "top_k": -1, "max_new_tokens": -5, "min_p": 10**400}
    assert sampling_defaults(FrontendConfig(engine=("ipc:///tmp/e",)), values) == SamplingDefaults(top_p=0.5)
    assert [record.args[0] for record in caplog.records if record.args] == ["temperature", "max_new_tokens"]


def test_defaults_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "generation.json").write_text(json.dumps({"top_p": 0.5}))
    config = FrontendConfig(engine=("ipc:///tmp/e",), generation_config=str(tmp_path / "generation.json"))
    assert sampling_defaults(config, MODEL_VALUES) == SamplingDefaults(top_p=0.5)


@pytest.mark.parametrize(
    "options",
    [
        {"generation_config": "/no/such/file.json"},
        {"override_generation_config": {"temprature": 1}},
        {"override_generation_config": {"temperature": "hot"}},
        {"override_generation_config": {"top_k": 1.5}},
        {"override_generation_config": {"temperature": 5}},
        {"override_generation_config": {"max_new_tokens": -1}},
    ],
)
def test_wrong_defaults_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="generation-config"):
        sampling_defaults(FrontendConfig(engine=("ipc:///tmp/e",), **options), {})
