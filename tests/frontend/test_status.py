"""Routes about the server and its models; request ids; the root path."""

import pytest

from tests.fake_engine import FakeEngine, toy_model
from tests.frontend.running import Server, StartServer
from tests.toy_tokenizer import IM_END, IM_START


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/ping", "/livez"])
async def test_health(server: Server, path: str) -> None:
    assert await server.get(path) == (200, {"status": "ok"})


@pytest.mark.parametrize("path", ["/ready", "/readyz"])
async def test_ready(server: Server, path: str) -> None:
    assert await server.get(path) == (200, {"status": "ready"})


async def test_version(server: Server) -> None:
    status, answer = await server.get("/version")
    assert status == 200
    assert answer["version"]


async def test_models_are_listed_under_all_their_names(server: Server) -> None:
    status, answer = await server.get("/v1/models")
    assert status == 200
    assert answer["object"] == "list"
    assert answer["data"][0] == {
        "id": "toy",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "pagewire",
        "root": "toy",
        "parent": None,
        "max_model_len": 512,
    }
    assert [model["id"] for model in answer["data"]] == ["toy", "toy-path"]


async def test_served_names_replace_the_engines(start_server: StartServer, engine: FakeEngine) -> None:
    server = await start_server(served_model_name=("first", "org/second"))
    _, models = await server.get("/v1/models")
    assert [model["id"] for model in models["data"]] == ["first", "org/second"]
    for asked, answered in (("org/second", "org/second"), (None, "first")):
        status, answer = await server.complete(model=asked)
        assert (status, answer["model"]) == (200, answered)
    assert (await server.complete(model="toy"))[0] == 404


async def test_a_name_with_slashes_can_be_retrieved(start_server: StartServer, engine: FakeEngine) -> None:
    engine.model = toy_model(name="org/toy")
    server = await start_server()
    for path in ("/v1/models/org/toy", "/v1/models/org%2Ftoy"):
        status, answer = await server.get(path)
        assert (status, answer["id"]) == (200, "org/toy")


async def test_openais_client_lists_and_retrieves(server: Server) -> None:
    client = server.client()
    assert [model.id async for model in client.models.list()] == ["toy", "toy-path"]
    assert (await client.models.retrieve("toy")).owned_by == "pagewire"


async def test_tokenize_a_prompt_and_back(server: Server) -> None:
    text = "<|im_start|>Hé"
    status, answer = await server.post("/tokenize", {"prompt": text})
    assert (status, answer) == (200, {"count": 4, "max_model_len": 512, "tokens": [IM_START, 72, 0xC3, 0xA9]})
    assert await server.post("/detokenize", {"tokens": answer["tokens"]}) == (200, {"prompt": text})


async def test_tokenize_messages_as_chat_does(server: Server, engine: FakeEngine) -> None:
    fields = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": False}
    _, answer = await server.post("/tokenize", fields)
    await server.post("/v1/chat/completions", fields)
    assert tuple(answer["tokens"]) == engine.received[0].prompt
    assert answer["tokens"][0] == IM_START
    assert IM_END not in answer["tokens"]


@pytest.mark.parametrize("body", [{}, {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}])
async def test_tokenize_takes_one_thing(server: Server, body: dict[str, object]) -> None:
    assert (await server.post("/tokenize", body))[0] == 400


async def test_detokenize_refuses_unknown_ids(server: Server) -> None:
    status, answer = await server.post("/detokenize", {"tokens": [1, 10**6]})
    assert (status, answer["error"]["param"]) == (400, "tokens[1]")


async def test_the_tokenizer_is_described_under_transformers_names(server: Server, engine: FakeEngine) -> None:
    assert await server.get("/tokenizer_info") == await server.get("/tokenizer_info?model=toy")
    _, info = await server.get("/tokenizer_info")
    assert info == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 512,
        "chat_template": engine.model.chat_templates["default"],
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": None,
        "unk_token": None,
    }
    assert (await server.get("/tokenizer_info?model=other"))[0] == 404


async def test_the_described_template_is_the_one_in_use(start_server: StartServer, engine: FakeEngine) -> None:
    engine.model = toy_model(special_tokens={"image_token": "<image>", "chat_template": "no"})
    _, info = await (await start_server(chat_template="{{ messages[0].content }}")).get("/tokenizer_info")
    assert info["chat_template"] == "{{ messages[0].content }}"
    assert info["image_token"] == "<image>"
    # Told by the ids that end an answer.
    assert info["eos_token"] == "<|im_end|>"


async def test_the_tokenizers_description_needs_a_key_and_can_be_off(start_server: StartServer) -> None:
    server = await start_server(api_key=("secret",))
    assert (await server.get("/tokenizer_info"))[0] == 401
    assert (await server.get("/tokenizer_info", Authorization="Bearer secret"))[0] == 200
    assert (await (await start_server(with_engine=False, tokenizer_info=False)).get("/tokenizer_info"))[0] == 404


@pytest.mark.parametrize(
    ("sent", "expected"),
    [("abc-123", "abc-123"), ("x" * 500, "x" * 128), ("a b\tc", "abc"), ("é", None), (None, None)],
)
async def test_request_ids_are_echoed_made_safe_or_made_up(
    server: Server, sent: str | None, expected: str | None
) -> None:
    headers = {} if sent is None else {"X-Request-Id": sent}
    for stream in (False, True):
        body = {"prompt": "x", "stream": stream}
        async with server.http.post(f"{server.url}/v1/completions", json=body, headers=headers) as response:
            text = await response.text()
            request_id = response.headers["X-Request-Id"]
        assert request_id == expected or (expected is None and len(request_id) == 32)
        assert request_id not in text


async def test_every_route_lives_under_the_root_path(start_server: StartServer) -> None:
    server = await start_server(root_path="/llm/")
    assert (await server.get("/llm/health"))[0] == 200
    assert (await server.get("/llm/v1/models"))[0] == 200
    assert (await server.get("/health"))[0] == 404
