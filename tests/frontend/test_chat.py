"""``POST /v1/chat/completions``: shapes, roles, echo, continuation, choices."""

import asyncio
import time
from itertools import product
from typing import Any

import pytest

from pagewire.protocol.messages import Generate
from tests.fake_engine import FakeEngine, Say, Stop, sampling_of, say, toy_model
from tests.frontend.running import Server, StartServer
from tests.toy_tokenizer import IM_END, IM_START

USER = {"role": "user", "content": "Hi"}
ASSISTANT = {"role": "assistant", "content": "Well, "}


def prompt_text(request: Generate) -> str:
    names = {IM_START: "<|im_start|>", IM_END: "<|im_end|>"}
    return "".join(names.get(token) or chr(token) for token in request.prompt)


async def test_plain_answer_has_the_shape_of_openai(server: Server) -> None:
    status, answer = await server.chat()
    assert status == 200
    assert answer["id"].startswith("chatcmpl-")
    assert abs(answer["created"] - time.time()) < 60
    del answer["id"], answer["created"]
    assert answer == {
        "object": "chat.completion",
        "model": "toy",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello there!", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": None,
            }
        ],
        "usage": {
            "prompt_tokens": 21,
            "completion_tokens": 13,
            "total_tokens": 34,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


async def test_stream_has_role_chunk_deltas_and_one_finish_chunk_per_choice(server: Server) -> None:
    stream = await server.stream_chat(n=2)
    assert stream.done
    for index in (0, 1):
        parts = stream.of(index)
        assert parts[0]["delta"] == {"role": "assistant", "content": ""}
        assert all("role" not in part["delta"] for part in parts[1:])
        assert [part["finish_reason"] for part in parts[:-1]] == [None] * (len(parts) - 1)
        assert parts[-1]["finish_reason"] == "stop"
        assert stream.text(index) == "Hello there!"
    assert {(chunk["id"], chunk["object"], chunk["created"], chunk["model"]) for chunk in stream.chunks} == {
        (stream.chunks[0]["id"], "chat.completion.chunk", stream.chunks[0]["created"], "toy")
    }
    assert all("usage" not in chunk for chunk in stream.chunks)


@pytest.mark.parametrize("text", ["Hello there!", "", 'né 你好 😀\n\u2028"quoted"\\'])
async def test_joined_stream_equals_plain_answer(server: Server, engine: FakeEngine, text: str) -> None:
    engine.script = say(text)
    fields: dict[str, Any] = {"max_tokens": 100, "logprobs": True, "top_logprobs": 2, "seed": 1}
    stream = await server.stream_chat(**fields, stream_options={"include_usage": True})
    _, plain = await server.chat(**fields)
    choice = plain["choices"][0]
    assert stream.text() == choice["message"]["content"] == text
    assert stream.choices[-1]["finish_reason"] == choice["finish_reason"]
    streamed = [entry for part in stream.choices if part["logprobs"] for entry in part["logprobs"]["content"]]
    assert streamed == (choice["logprobs"] or {"content": []})["content"]
    assert stream.chunks[-1]["usage"] == plain["usage"]


async def test_text_of_the_finishing_delta_is_not_lost(server: Server, engine: FakeEngine) -> None:
    stream = await server.stream_chat(max_tokens=5)
    assert stream.text() == "Hello"
    assert stream.choices[-1]["finish_reason"] == "length"


async def test_non_ascii_text_is_not_escaped(server: Server, engine: FakeEngine) -> None:
    engine.script = say("é😀")
    async with server.http.post(f"{server.url}/v1/chat/completions", json={"messages": [USER]}) as response:
        assert "é😀" in (await response.read()).decode()


@pytest.mark.parametrize(("matched", "shown"), [("END", "END"), (IM_END, IM_END), (None, None)])
async def test_stop_reason_says_what_matched(
    server: Server, engine: FakeEngine, matched: str | int | None, shown: str | int | None
) -> None:
    engine.script = lambda request: [Say("ok"), Stop(matched)]
    _, plain = await server.chat()
    stream = await server.stream_chat()
    for choice in (plain["choices"][0], stream.choices[-1]):
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", shown)


async def test_prompt_is_the_rendered_template_without_added_special_tokens(server: Server, engine: FakeEngine) -> None:
    await server.chat([{"role": "meta-date", "content": "today"}, USER])
    assert prompt_text(engine.received[0]) == (
        "<|im_start|>meta-date\ntoday<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("fields", "ending"),
    [
        ({}, "Well, <|im_end|>\n<|im_start|>assistant\n"),
        ({"add_generation_prompt": True}, "Well, <|im_end|>\n<|im_start|>assistant\n"),
        ({"add_generation_prompt": False}, "<|im_start|>assistant\nWell, "),
        ({"continue_final_message": True}, "<|im_start|>assistant\nWell, "),
        ({"continue_final_message": True, "add_generation_prompt": False}, "<|im_start|>assistant\nWell, "),
    ],
)
async def test_generation_prompt_and_continuation_reach_the_template(
    server: Server, engine: FakeEngine, fields: dict[str, Any], ending: str
) -> None:
    status, _ = await server.chat([USER, ASSISTANT], **fields)
    assert status == 200
    assert prompt_text(engine.received[0]).endswith(ending)


async def test_continuing_with_an_explicit_generation_prompt_is_refused(server: Server) -> None:
    status, answer = await server.chat([USER, ASSISTANT], continue_final_message=True, add_generation_prompt=True)
    assert status == 400
    assert answer["error"]["param"] == "continue_final_message"


LAST_ROLES = ("user", "assistant", "narrator")


@pytest.mark.parametrize(
    ("response_role", "last_role", "add_generation_prompt", "echo", "stream"),
    [
        *product(("assistant", "narrator"), LAST_ROLES, (True, False, None), (True, False), (False, True)),
    ],
)
async def test_role_and_echo_rules(
    start_server: StartServer,
    response_role: str,
    last_role: str,
    add_generation_prompt: bool | None,
    echo: bool,
    stream: bool,
) -> None:
    server = await start_server(response_role=response_role)
    messages = [USER, {"role": last_role, "content": [{"type": "text", "text": "Well, "}]}]
    fields = {"echo": echo, "n": 2, "add_generation_prompt": add_generation_prompt}
    role = last_role if add_generation_prompt is False else response_role
    text = "Well, Hello there!" if echo and role == last_role else "Hello there!"
    if stream:
        streamed = await server.stream_chat(messages, **fields)
        answers = [(streamed.of(index)[0]["delta"]["role"], streamed.text(index)) for index in (0, 1)]
    else:
        _, plain = await server.chat(messages, **fields)
        answers = [(choice["message"]["role"], choice["message"]["content"]) for choice in plain["choices"]]
    assert answers == [(role, text)] * 2


async def test_echoed_text_is_one_chunk_per_choice_after_all_role_chunks(server: Server) -> None:
    stream = await server.stream_chat([USER, ASSISTANT], echo=True, continue_final_message=True, n=2)
    first_four = [(choice["index"], choice["delta"]) for choice in stream.choices[:4]]
    assert first_four == [
        (0, {"role": "assistant", "content": ""}),
        (1, {"role": "assistant", "content": ""}),
        (0, {"content": "Well, "}),
        (1, {"content": "Well, "}),
    ]


async def test_echo_changes_no_usage_and_no_logprobs(server: Server) -> None:
    fields = {"continue_final_message": True, "logprobs": True}
    _, silent = await server.chat([USER, ASSISTANT], **fields)
    _, echoed = await server.chat([USER, ASSISTANT], echo=True, **fields)
    assert echoed["usage"] == silent["usage"]
    assert echoed["choices"][0]["logprobs"] == silent["choices"][0]["logprobs"]


async def test_choices_have_consecutive_seeds_and_count_the_prompt_once(server: Server, engine: FakeEngine) -> None:
    engine.script = lambda request: [Say(f"choice of seed {request.sampling.seed}"), Stop()]
    engine.cached = 16
    _, answer = await server.chat(n=3, seed=7)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert [choice["message"]["content"][-1] for choice in answer["choices"]] == ["7", "8", "9"]
    assert answer["usage"]["prompt_tokens"] == 21
    assert answer["usage"]["completion_tokens"] == 3 * len("choice of seed 7.")
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}


async def test_without_a_seed_every_request_draws_its_own(server: Server, engine: FakeEngine) -> None:
    await asyncio.gather(*(server.chat() for _ in range(4)))
    seeds = {request.sampling.seed for request in engine.received}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**63 for seed in seeds)


async def test_logprobs_have_the_shape_of_openai(server: Server, engine: FakeEngine) -> None:
    engine.script = say("A")
    _, answer = await server.chat(logprobs=True, top_logprobs=2, max_tokens=1)
    assert answer["choices"][0]["logprobs"] == {
        "content": [
            {
                "token": "A",
                "logprob": -0.5,
                "bytes": [65],
                "top_logprobs": [
                    {"token": "A", "logprob": -0.5, "bytes": [65]},
                    {"token": "B", "logprob": -1.5, "bytes": [66]},
                ],
            }
        ],
        "refusal": None,
    }


async def test_logprobs_without_alternatives_list_none(server: Server, engine: FakeEngine) -> None:
    _, answer = await server.chat(logprobs=True, top_logprobs=0, max_tokens=1)
    assert answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []


async def test_no_chunk_carries_an_empty_logprobs_object(server: Server) -> None:
    stream = await server.stream_chat(logprobs=True)
    assert all(part["logprobs"] is None or part["logprobs"]["content"] for part in stream.choices)
    assert sum(len((part["logprobs"] or {"content": []})["content"]) for part in stream.choices) == len("Hello there!")


async def test_prompt_logprobs_stand_beside_the_choices(server: Server) -> None:
    _, answer = await server.chat(prompt_logprobs=1, max_tokens=1)
    first, second, *_ = answer["prompt_logprobs"]
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert first is None
    assert second == {str(ord("u")): {"logprob": -0.5, "rank": 1, "decoded_token": "u"}}


async def test_usage_on_every_chunk_only_when_asked_for(server: Server) -> None:
    stream = await server.stream_chat(stream_options={"include_usage": True, "continuous_usage_stats": True})
    totals = [chunk["usage"]["completion_tokens"] for chunk in stream.chunks]
    assert totals == sorted(totals)
    assert stream.chunks[-1]["choices"] == []
    assert totals[-1] == 13


async def test_usage_chunk_is_the_last_and_the_others_say_null(server: Server) -> None:
    stream = await server.stream_chat(stream_options={"include_usage": True})
    assert [chunk["usage"] for chunk in stream.chunks[:-1]] == [None] * (len(stream.chunks) - 1)
    assert stream.chunks[-1]["choices"] == []
    assert stream.chunks[-1]["usage"]["total_tokens"] == 34


async def test_the_newer_name_of_the_token_limit_wins(server: Server, engine: FakeEngine) -> None:
    await server.chat(max_tokens=7, max_completion_tokens=3)
    assert sampling_of(engine).max_tokens == 3


async def test_without_a_limit_a_chat_may_fill_the_context(server: Server, engine: FakeEngine) -> None:
    await server.chat()
    assert sampling_of(engine).max_tokens == engine.limits.max_model_len - 21


async def test_template_variables_come_from_server_and_request(start_server: StartServer, engine: FakeEngine) -> None:
    template = "{{ color }}-{{ size }}-{{ reasoning_effort }}:{{ messages[0].content }}"
    server = await start_server(chat_template=template, default_chat_template_kwargs={"color": "red", "size": "big"})
    await server.chat(chat_template_kwargs={"size": "small"}, reasoning_effort="low")
    assert prompt_text(engine.received[0]) == "red-small-low:Hi"


async def test_reserved_template_variables_are_refused(server: Server) -> None:
    status, answer = await server.chat(chat_template_kwargs={"messages": []})
    assert status == 400
    assert answer["error"]["param"] == "chat_template_kwargs"


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_template_refuses_is_a_400_in_its_own_words(start_server: StartServer, stream: bool) -> None:
    server = await start_server(chat_template="{{ raise_exception('roles must alternate') }}")
    status, answer = await server.chat(stream=stream)
    assert status == 400
    assert answer["error"]["message"] == "roles must alternate"
    assert answer["error"]["param"] == "messages"


async def test_without_a_template_chat_says_what_to_do_and_completions_work(
    start_server: StartServer, engine: FakeEngine
) -> None:
    engine.model = toy_model(chat_templates={})
    server = await start_server()
    status, answer = await server.chat()
    assert status == 400
    assert "--chat-template" in answer["error"]["message"]
    status, _ = await server.complete()
    assert status == 200


async def test_priority_and_cache_salt_reach_the_engine(server: Server, engine: FakeEngine) -> None:
    await server.chat(priority=-5, cache_salt="tenant")
    assert (engine.received[0].priority, engine.received[0].salt) == (-5, "tenant")
