"""``POST .../render``: what is shown is what the engine would get, and nothing is generated."""

from typing import Any

import pytest

from tests.fake_engine import FakeEngine
from tests.frontend.running import Server, chat_body
from tests.toy_tokenizer import IM_START

CHATS: list[dict[str, Any]] = [
    {},
    {"add_generation_prompt": False},
    {"continue_final_message": True},
    {"truncate_prompt_tokens": 5},
    {"tools": [{"type": "function", "function": {"name": "f"}}]},
]


@pytest.mark.parametrize("fields", CHATS)
async def test_a_rendered_chat_is_the_prompt_of_that_chat(
    server: Server, engine: FakeEngine, fields: dict[str, Any]
) -> None:
    body = chat_body("Hi é", **fields)
    status, answer = await server.post("/v1/chat/completions/render", body)
    assert status == 200
    assert engine.received == []
    await server.post("/v1/chat/completions", body)
    [prompt] = answer.pop("data")
    ids = list(engine.received[0].prompt)
    assert (prompt["prompt_token_ids"], prompt["count"]) == (ids, len(ids))
    served = await server.frontend.catalog.find("toy")
    assert prompt["prompt"] == served.tokenizer.decode(ids)
    assert answer == {"object": "list", "model": "toy", "max_model_len": 512}


@pytest.mark.parametrize("prompt", ["<|im_start|>Hi", ["a", "b"], [IM_START, 72], [[72], [105]]])
async def test_rendered_completions_are_the_prompts_of_those(server: Server, engine: FakeEngine, prompt: Any) -> None:
    body = {"model": "toy", "prompt": prompt}
    _, answer = await server.post("/v1/completions/render", body)
    await server.post("/v1/completions", body)
    assert [one["prompt_token_ids"] for one in answer["data"]] == [list(sent.prompt) for sent in engine.received]
    assert [one["index"] for one in answer["data"]] == list(range(len(engine.received)))


async def test_what_cannot_be_rendered_is_an_error_as_for_the_request_itself(server: Server) -> None:
    status, answer = await server.post("/v1/chat/completions/render", chat_body([{"role": "user"}]))
    assert (status, answer["error"]["param"]) == (400, "messages[0].content")
    status, answer = await server.post("/v1/completions/render", {"prompt": "x" * 10_000})
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
