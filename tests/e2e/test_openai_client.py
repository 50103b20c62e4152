"""OpenAI's own Python client, sync and async, against the real programs."""

from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.e2e.programs import Deployment, Frontend, free_port
from tests.tiny_chat_model import NAME

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
IGNORE_EOS = {"ignore_eos": True}
SAYING_A: dict[str, int] = {str(ord("A")): 100}


@pytest.fixture
def client(frontend: Frontend) -> Iterator[openai.OpenAI]:
    with frontend.client() as client:
        yield client


def test_models_lists_the_model_and_finds_it_by_name(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [NAME]
    assert client.models.retrieve(NAME).object == "model"


def test_a_chat_streams_the_same_that_it_answers(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(
        model=NAME, messages=HELLO, max_tokens=20, temperature=0, extra_body=IGNORE_EOS
    )
    assert whole.usage is not None
    assert (whole.usage.completion_tokens, whole.choices[0].finish_reason) == (20, "length")
    assert whole.choices[0].message.role == "assistant"
    chunks = list(
        client.chat.completions.create(
            model=NAME,
            messages=HELLO,
            max_tokens=20,
            temperature=0,
            extra_body=IGNORE_EOS,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    deltas = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in deltas) == whole.choices[0].message.content
    assert [choice.finish_reason for choice in deltas if choice.finish_reason] == ["length"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 20


async def test_the_async_client_gets_the_same_as_the_sync_one(client: openai.OpenAI, frontend: Frontend) -> None:
    whole = client.chat.completions.create(
        model=NAME, messages=HELLO, max_tokens=20, temperature=0, extra_body=IGNORE_EOS
    )
    async with frontend.async_client() as async_client:
        answer = await async_client.chat.completions.create(
            model=NAME, messages=HELLO, max_tokens=20, temperature=0, extra_body=IGNORE_EOS
        )
        assert answer.choices[0].message.content == whole.choices[0].message.content
        text = ""
        async for chunk in await async_client.chat.completions.create(
            model=NAME, messages=HELLO, max_tokens=20, temperature=0, extra_body=IGNORE_EOS, stream=True
        ):
            text += chunk.choices[0].delta.content or ""
        assert text == whole.choices[0].message.content
        assert [model.id async for model in async_client.models.list()] == [NAME]


def test_completions_continue_each_prompt_of_a_list(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=NAME, prompt=["one", "two"], max_tokens=3, temperature=0, logit_bias=SAYING_A, logprobs=1, echo=True
    )
    assert [choice.text for choice in answer.choices] == ["oneAAA", "twoAAA"]
    assert answer.choices[1].logprobs is not None
    assert answer.choices[1].logprobs.tokens == ["t", "w", "o", "A", "A", "A"]


def test_completions_stream(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model=NAME, prompt="one", max_tokens=4, temperature=0, logit_bias=SAYING_A, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == "AAAA"


def test_log_probabilities_have_the_shape_that_the_client_knows(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=NAME, messages=HELLO, max_tokens=2, temperature=0, logit_bias=SAYING_A, logprobs=True, top_logprobs=2
    )
    assert answer.choices[0].logprobs is not None
    entries = answer.choices[0].logprobs.content
    assert entries is not None
    assert [(entry.token, entry.bytes, len(entry.top_logprobs)) for entry in entries] == [("A", [65], 2)] * 2


def test_several_choices_with_a_seed_differ_and_repeat(client: openai.OpenAI) -> None:
    texts = [
        [
            choice.message.content
            for choice in client.chat.completions.create(
                model=NAME, messages=HELLO, max_tokens=12, n=3, seed=5, temperature=1, extra_body=IGNORE_EOS
            ).choices
        ]
        for _ in range(2)
    ]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 3


def test_a_raw_response_has_the_headers_and_parses(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=NAME, messages=HELLO, max_tokens=1, extra_headers={"X-Request-Id": "mine"}, user="someone"
    )
    assert raw.headers["X-Request-Id"] == "mine"
    assert "user" in raw.headers["X-Ignored-Params"]
    assert raw.parse().object == "chat.completion"


async def test_a_raw_stream_has_the_headers_and_parses(frontend: Frontend) -> None:
    async with frontend.async_client() as client:
        raw = await client.chat.completions.with_raw_response.create(
            model=NAME, messages=HELLO, max_tokens=3, stream=True, extra_body=IGNORE_EOS
        )
        assert raw.headers["Content-Type"].startswith("text/event-stream")
        reasons = [chunk.choices[0].finish_reason async for chunk in raw.parse()]
    assert [reason for reason in reasons if reason] == ["length"]


# --- the client's exceptions


def test_a_value_out_of_range_is_a_bad_request_that_names_it(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=NAME, messages=HELLO, temperature=-1)
    assert caught.value.param == "temperature"


def test_too_long_a_prompt_has_its_own_code(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length") as caught:
        client.completions.create(model=NAME, prompt="x" * 20_000, max_tokens=1)
    assert caught.value.code == "context_length_exceeded"


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="no-such-model", messages=HELLO)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


def test_a_wrong_key_is_an_authentication_error_and_the_right_one_is_let_in(deployment: Deployment) -> None:
    frontend = deployment.start_frontend("--api-key", "right")
    frontend.wait_until_ready()
    with frontend.client(api_key="wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
    with frontend.client(api_key="right") as client:
        assert [model.id for model in client.models.list()] == [NAME]


def test_more_than_it_takes_is_a_rate_limit_error_until_there_is_room(deployment: Deployment) -> None:
    frontend = deployment.start_frontend("--max-inflight", "1")
    frontend.wait_until_ready()
    with frontend.client() as client:
        stream = client.chat.completions.create(
            model=NAME, messages=HELLO, max_tokens=10_000, stream=True, extra_body=IGNORE_EOS
        )
        next(stream)
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(model=NAME, messages=HELLO, max_tokens=1)
        assert int(caught.value.response.headers["Retry-After"]) >= 1
        stream.close()
        frontend.wait_until_idle()
        client.chat.completions.create(model=NAME, messages=HELLO, max_tokens=1)


def test_without_an_engine_it_is_a_server_error_503(deployment: Deployment) -> None:
    frontend = deployment.start_frontend(engine=f"tcp://127.0.0.1:{free_port()}")
    assert frontend.get("/ready")[0] == 503
    with frontend.client() as client, pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model=NAME, messages=HELLO)
    assert caught.value.status_code == 503
