"""Fields of chat and completions beyond OpenAI's, and rarely used ones: each has its effect or is refused."""

from typing import Any

import pytest

from pagewire.protocol.messages import Generate
from tests.fake_engine import LIMITS, FakeEngine, Say, Step, Stop, sampling_of
from tests.frontend.running import Server, chat_body
from tests.toy_tokenizer import IM_START

BOTH = pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])


def body_for(path: str, content: str = "Hi", **fields: Any) -> dict[str, Any]:
    """A request with a given text for either endpoint."""
    if path.endswith("chat/completions"):
        return chat_body(content, **fields)
    return {"model": "toy", "prompt": content, **fields}


async def ask(server: Server, path: str, **fields: Any) -> tuple[int, Any]:
    return await server.post(path, body_for(path, **fields))


# --- token limits


@BOTH
async def test_allowed_tokens_and_bad_words_reach_the_engine_as_ids(
    server: Server, engine: FakeEngine, path: str
) -> None:
    status, _ = await ask(server, path, allowed_token_ids=[72, 105, 72], bad_words=["ab", "c", " d"])
    assert status == 200
    sampling = sampling_of(engine)
    assert sampling.allowed_token_ids == (72, 105)
    assert sampling.bad_words == (tuple(b"ab"), tuple(b"c"), tuple(b"d"))


@BOTH
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [72, 999999]}, "allowed_token_ids[1]"),
        ({"allowed_token_ids": ["a"]}, "allowed_token_ids[0]"),
        ({"bad_words": ["a", ""]}, "bad_words[1]"),
        ({"bad_words": "a"}, "bad_words"),
        ({"bad_words": ["x" * 2000]}, "bad_words[0]"),
        ({"bad_words": ["x"] * 1000}, "bad_words"),
        ({"bad_words": ["x" * 100] * 100}, "bad_words"),
        ({"bad_words": ["H", "i"], "allowed_token_ids": [72, 105]}, "bad_words"),
        ({"logprobs_mode": "processed_logprobs"}, "logprobs_mode"),
        ({"truncation_side": "right"}, "truncation_side"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": LIMITS.max_model_len + 1}, "truncate_prompt_tokens"),
    ],
)
async def test_what_makes_no_sense_is_named(
    server: Server, engine: FakeEngine, path: str, fields: dict[str, Any], param: str
) -> None:
    status, answer = await ask(server, path, **fields)
    assert (status, answer["error"]["param"]) == (400, param)
    assert engine.received == []


async def test_a_stop_string_that_is_a_special_token_stops_at_it(server: Server, engine: FakeEngine) -> None:
    await server.complete(stop=["<|im_start|>", "x"], stop_token_ids=[5])
    sampling = sampling_of(engine)
    assert sampling.stop == ("<|im_start|>", "x")
    assert sampling.stop_token_ids == (5, IM_START)


async def test_a_special_token_that_is_shown_is_found_in_the_text(server: Server, engine: FakeEngine) -> None:
    await server.complete(stop="<|im_end|>", skip_special_tokens=False)
    assert sampling_of(engine).stop_token_ids == ()


# --- the prompt


@pytest.mark.parametrize(("keep", "prompt"), [(3, b"234"), (5, b"01234"), (9, b"01234"), (-1, b"01234")])
async def test_prompts_are_cut_to_their_last_tokens(
    server: Server, engine: FakeEngine, keep: int, prompt: bytes
) -> None:
    _, answer = await server.complete("01234", truncate_prompt_tokens=keep, echo=True, max_tokens=1)
    assert bytes(engine.received[0].prompt) == prompt
    assert answer["choices"][0]["text"] == prompt.decode() + "H"
    assert answer["usage"]["prompt_tokens"] == len(prompt)


@BOTH
async def test_a_prompt_of_any_length_can_be_cut_to_what_fits(server: Server, engine: FakeEngine, path: str) -> None:
    status, _ = await ask(server, path, content="x" * 5000, truncate_prompt_tokens=-1, max_tokens=10)
    assert status == 200
    assert len(engine.received[0].prompt) == LIMITS.max_model_len - 10


async def test_a_suffix_that_cannot_fit_is_not_tokenized(server: Server) -> None:
    status, answer = await server.complete(suffix="x" * 1_000_000)
    assert (status, answer["error"]["param"], answer["error"]["code"]) == (400, "suffix", "context_length_exceeded")


async def test_a_suffix_needs_a_model_that_fills_in(server: Server) -> None:
    status, answer = await server.complete(suffix="end")
    assert status == 400
    assert (answer["error"]["param"], answer["error"]["code"]) == ("suffix", "unsupported_parameter")


# --- what the answer shows


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_shows_the_ids_of_prompt_and_answer(server: Server, engine: FakeEngine, stream: bool) -> None:
    fields = {"return_token_ids": True, "max_tokens": 5, "n": 2, "stream_options": {"include_usage": True}}
    if stream:
        got = await server.stream_chat(**fields)
        assert [chunk["prompt_token_ids"] for chunk in got.chunks if "prompt_token_ids" in chunk] == [
            list(engine.received[0].prompt)
        ]
        assert "prompt_token_ids" in got.chunks[0]
        ids = [[token for part in got.of(index) for token in part.get("token_ids", [])] for index in range(2)]
    else:
        _, answer = await server.chat(**{**fields, "stream_options": None})
        assert answer["prompt_token_ids"] == list(engine.received[0].prompt)
        ids = [choice["token_ids"] for choice in answer["choices"]]
    assert ids == [list(b"Hello")] * 2


@pytest.mark.parametrize("stream", [False, True])
async def test_completions_show_the_ids_of_prompt_and_answer(server: Server, stream: bool) -> None:
    fields = {"return_token_ids": True, "max_tokens": 5}
    prompts = ["Hi", "Ho"]
    if stream:
        got = await server.stream_completion(prompts, **fields)
        parts = [got.of(index) for index in range(2)]
        assert [part[0]["prompt_token_ids"] for part in parts] == [list(b"Hi"), list(b"Ho")]
        assert [[token for one in part for token in one["token_ids"]] for part in parts] == [list(b"Hello")] * 2
    else:
        _, answer = await server.complete(prompts, **fields)
        assert [choice["prompt_token_ids"] for choice in answer["choices"]] == [list(b"Hi"), list(b"Ho")]
        assert [choice["token_ids"] for choice in answer["choices"]] == [list(b"Hello")] * 2


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities_call_tokens_by_their_ids_on_request(server: Server, stream: bool) -> None:
    fields = {"return_tokens_as_token_ids": True, "max_tokens": 1}
    if stream:
        chats = await server.stream_chat(logprobs=True, top_logprobs=1, **fields)
        completions = await server.stream_completion(logprobs=1, echo=True, **fields)
        [chat], [legacy] = ([part for part in got.choices if part["logprobs"]] for got in (chats, completions))
    else:
        [chat] = (await server.chat(logprobs=True, top_logprobs=1, **fields))[1]["choices"]
        [legacy] = (await server.complete(logprobs=1, echo=True, **fields))[1]["choices"]
    [entry] = chat["logprobs"]["content"]
    assert (entry["token"], entry["bytes"]) == ("token_id:72", [72])
    assert entry["top_logprobs"][0]["token"] == "token_id:72"
    assert legacy["logprobs"]["tokens"] == ["token_id:72", "token_id:105", "token_id:72"]
    assert legacy["logprobs"]["top_logprobs"][1:] == [{"token_id:105": -0.5}, {"token_id:72": -0.5}]


# --- best_of


async def test_best_of_keeps_the_likeliest(server: Server, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    likely = {0: -3.0, 1: -1.0, 2: -2.0, 3: -0.5}

    def script(request: Generate) -> list[Step]:
        return [Say(f"{bytes(request.prompt).decode()}{request.sampling.seed}"), Stop()]

    engine.script = script
    monkeypatch.setattr("pagewire.frontend.openai.best_of.mean_logprob", lambda choice: likely[int(choice.text[-1])])
    _, answer = await server.complete(["a", "b"], n=2, best_of=4, seed=0)
    assert [choice["text"] for choice in answer["choices"]] == ["a3", "a1", "b3", "b1"]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert all(choice["logprobs"] is None for choice in answer["choices"])
    # What was generated is counted, shown or not.
    assert answer["usage"]["completion_tokens"] == 8 * 3
    assert answer["usage"]["prompt_tokens"] == 2
    assert all(request.sampling.logprobs == 0 for request in engine.received)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"best_of": 1}, 200),
        ({"best_of": 2, "n": 2, "stream": True}, 200),
        ({"best_of": 0}, 400),
        ({"best_of": 1, "n": 2}, 400),
        ({"best_of": 2, "stream": True}, 400),
        ({"best_of": 1000}, 400),
        ({"best_of": "2"}, 400),
    ],
)
async def test_best_of_is_at_least_n_and_not_for_streams(server: Server, fields: dict[str, Any], status: int) -> None:
    async with server.http.post(f"{server.url}/v1/completions", json={"prompt": "a", **fields}) as response:
        assert response.status == status
        if status == 400:
            assert (await response.json())["error"]["param"] == "best_of"


async def test_best_of_counts_for_the_limit_of_choices(server: Server, engine: FakeEngine) -> None:
    status, answer = await server.complete(["a"] * 10, best_of=20)
    assert (status, answer["error"]["param"]) == (400, "n")
    assert engine.received == []


async def test_best_of_is_for_completions_only(server: Server) -> None:
    status, answer = await server.chat(best_of=3)
    assert (status, answer["error"]["param"]) == (400, "best_of")


def test_the_mean_weighs_choices_of_any_length_alike() -> None:
    from pagewire.frontend.openai.best_of import mean_logprob
    from pagewire.frontend.openai.choices import Collected
    from tests.fake_engine import logprob

    entry = logprob(72, 0, 0)
    assert mean_logprob(Collected(logprobs=[entry])) == mean_logprob(Collected(logprobs=[entry] * 7)) == -0.5
    assert mean_logprob(Collected()) == -float("inf")
