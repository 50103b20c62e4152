"""``POST /v1/completions``: forms of prompts, echo, legacy log-probabilities, choices."""

from typing import Any

import pytest

from tests.fake_engine import FakeEngine, Say, Stop, sampling_of, say
from tests.frontend.running import Server
from tests.toy_tokenizer import END_OF_TEXT, IM_START


async def test_plain_answer_has_the_shape_of_openai(server: Server) -> None:
    _, answer = await server.complete(max_tokens=5)
    assert answer.pop("id").startswith("cmpl-")
    assert isinstance(answer.pop("created"), int)
    assert answer == {
        "object": "text_completion",
        "model": "toy",
        "choices": [
            {"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "length", "stop_reason": None},
        ],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": 5,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


async def test_stream_has_the_same_object_and_one_finish_chunk(server: Server) -> None:
    stream = await server.stream_completion(max_tokens=5)
    assert stream.done
    assert {chunk["object"] for chunk in stream.chunks} == {"text_completion"}
    assert stream.text() == "Hello"
    assert [choice["finish_reason"] for choice in stream.choices if choice["finish_reason"]] == ["length"]


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("Hi", [b"Hi"]),
        (["Hi", "Ho"], [b"Hi", b"Ho"]),
        ([72, 105], [b"Hi"]),
        ([[72, 105], [72]], [b"Hi", b"H"]),
    ],
)
async def test_every_form_of_prompt_reaches_the_engine_as_ids(
    server: Server, engine: FakeEngine, prompt: Any, ids: list[bytes]
) -> None:
    status, answer = await server.complete(prompt)
    assert status == 200
    assert [bytes(request.prompt) for request in engine.received] == ids
    assert answer["usage"]["prompt_tokens"] == sum(map(len, ids))


async def test_prompts_are_never_templated(server: Server, engine: FakeEngine) -> None:
    await server.complete("<|im_start|>user")
    assert engine.received[0].prompt == (IM_START, *b"user")


async def test_choices_are_numbered_by_prompt_then_choice(server: Server, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say(f"{bytes(request.prompt).decode()}{request.sampling.seed}"), Stop()]
    for fields in ({}, {"echo": True}):
        _, plain = await server.complete(["a", "b"], n=2, seed=5, **fields)
        stream = await server.stream_completion(["a", "b"], n=2, seed=5, **fields)
        expected = ["a5", "a6", "b5", "b6"] if not fields else ["aa5", "aa6", "bb5", "bb6"]
        assert [choice["text"] for choice in plain["choices"]] == expected
        assert [choice["index"] for choice in plain["choices"]] == [0, 1, 2, 3]
        assert [stream.text(index) for index in range(4)] == expected


async def test_sixteen_tokens_unless_said_otherwise(server: Server, engine: FakeEngine) -> None:
    await server.complete(max_tokens=None)
    assert sampling_of(engine).max_tokens == 16


async def test_the_default_length_shrinks_to_the_room_that_is_left(server: Server, engine: FakeEngine) -> None:
    await server.complete("x" * (engine.limits.max_model_len - 3))
    assert sampling_of(engine).max_tokens == 3


@pytest.mark.parametrize("prompt", ["Hi é", [72, 105, 32, 0xC3, 0xA9]])
@pytest.mark.parametrize("stream", [False, True])
async def test_echo_puts_the_prompt_before_the_text(server: Server, prompt: Any, stream: bool) -> None:
    if stream:
        text = (await server.stream_completion(prompt, echo=True)).text()
    else:
        text = (await server.complete(prompt, echo=True))[1]["choices"][0]["text"]
    assert text == "Hi éHello there!"


async def test_echoed_ids_show_special_tokens(server: Server) -> None:
    _, answer = await server.complete([72, END_OF_TEXT], echo=True, max_tokens=1)
    assert answer["choices"][0]["text"] == "H<|endoftext|>H"


async def test_logprobs_with_echo_cover_prompt_and_completion(server: Server) -> None:
    _, answer = await server.complete("Hi", echo=True, logprobs=2, max_tokens=2)
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["H", "i", "H", "e"],
        "token_logprobs": [None, -0.5, -0.5, -0.5],
        "top_logprobs": [None, {"i": -0.5, "j": -1.5}, {"H": -0.5, "I": -1.5}, {"e": -0.5, "f": -1.5}],
        "text_offset": [0, 1, 2, 3],
    }


@pytest.mark.parametrize("fields", [{}, {"echo": True}, {"echo": True, "max_tokens": 0}])
async def test_streamed_logprobs_join_to_the_plain_ones(server: Server, fields: dict[str, Any]) -> None:
    fields = {"logprobs": 1, "max_tokens": 4, **fields}
    _, plain = await server.complete("Hi", **fields)
    stream = await server.stream_completion("Hi", **fields)
    joined: dict[str, list[Any]] = {}
    for choice in stream.choices:
        for key, values in (choice["logprobs"] or {}).items():
            joined.setdefault(key, []).extend(values)
    assert joined == plain["choices"][0]["logprobs"]
    assert stream.text() == plain["choices"][0]["text"]


async def test_logprobs_without_echo_start_at_offset_zero(server: Server) -> None:
    _, answer = await server.complete("Hi", logprobs=0, max_tokens=2)
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["H", "e"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"H": -0.5}, {"e": -0.5}],
        "text_offset": [0, 1],
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_no_tokens_with_echo_give_the_prompt_alone(server: Server, engine: FakeEngine, stream: bool) -> None:
    fields = {"echo": True, "logprobs": 1, "max_tokens": 0}
    if stream:
        choices = (await server.stream_completion("Hi", **fields)).choices
    else:
        choices = (await server.complete("Hi", **fields))[1]["choices"]
    [choice] = choices
    assert (choice["text"], choice["finish_reason"]) == ("Hi", "length")
    assert choice["logprobs"]["tokens"] == ["H", "i"]
    assert sampling_of(engine).max_tokens == 0


async def test_prompt_logprobs_belong_to_their_choice(server: Server) -> None:
    _, answer = await server.complete(["Hi", "a"], prompt_logprobs=0, max_tokens=1)
    assert [choice["prompt_logprobs"] for choice in answer["choices"]] == [
        [None, {"105": {"logprob": -0.5, "rank": 1, "decoded_token": "i"}}],
        [None],
    ]


async def test_usage_counts_all_prompts_and_completions(server: Server) -> None:
    fields = {"n": 2, "max_tokens": 3, "stream_options": {"include_usage": True}}
    stream = await server.stream_completion(["Hi", "a"], **fields)
    assert stream.chunks[-1]["choices"] == []
    usage = stream.chunks[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (3, 12, 15)


async def test_multibyte_text_comes_whole(server: Server, engine: FakeEngine) -> None:
    engine.script = say("你好😀")
    stream = await server.stream_completion(max_tokens=100)
    assert stream.text() == "你好😀"


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (None, "prompt"),
        ([], "prompt"),
        ("", "prompt"),
        ({}, "prompt"),
        (7, "prompt"),
        ([[]], "prompt[0]"),
        (["a", 7], "prompt[1]"),
        (["a", ""], "prompt[1]"),
        ([1.5], "prompt[0]"),
        ([True], "prompt[0]"),
        ([72, "a"], "prompt[1]"),
        ([-1], "prompt[0]"),
        ([999999], "prompt[0]"),
        ([9223372036854775808], "prompt[0]"),
        ([[72], [72, 999]], "prompt[1][1]"),
        (["a"] * 65, "prompt"),
    ],
)
async def test_impossible_prompts_are_named(server: Server, prompt: Any, param: str) -> None:
    status, answer = await server.complete(prompt)
    assert status == 400
    assert answer["error"]["param"] == param
    assert answer["error"]["type"] == "invalid_request_error"


async def test_choices_of_all_prompts_together_are_bounded(server: Server, engine: FakeEngine) -> None:
    status, answer = await server.complete(["a"] * 3, n=50)
    assert status == 400
    assert answer["error"]["param"] == "n"
    assert engine.received == []
