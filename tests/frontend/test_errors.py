"""Every error, on every route, is an error object with the right status; OpenAI's own client raises its own classes."""

import asyncio
import logging
from typing import Any

import openai
import pytest

from pagewire.frontend.tokenizer import Tokenizer
from pagewire.protocol.messages import Error
from tests.fake_engine import FakeEngine, Refuse, Silence, toy_model, until
from tests.frontend.running import Server, StartServer, strict_json


def check_error(answer: Any) -> dict[str, Any]:
    assert answer.keys() == {"error"}
    error: dict[str, Any] = answer["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    return error


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1/no-such-thing", 404),
        ("POST", "/v1/no-such-thing", 404),
        ("GET", "//v1/models", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/models/unknown", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
        ("PROPFIND", "/metrics", 405),
    ],
)
async def test_routes_and_methods_that_do_not_exist(server: Server, method: str, path: str, status: int) -> None:
    async with server.http.request(method, server.url + path) as response:
        assert response.status == status
        assert response.content_type == "application/json"
        assert check_error(await response.json())["type"] == "invalid_request_error"
        assert ("Allow" in response.headers) == (status == 405)


async def test_an_unknown_model_is_not_found(server: Server) -> None:
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/tokenize", {"prompt": "Hi"}),
        ("/detokenize", {"tokens": [1]}),
    ):
        status, answer = await server.post(path, {"model": "other", **body})
        error = check_error(answer)
        assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")


# As deep as JSON may be here; deeper bodies are refused when they are decoded.
NESTED: list[Any] = []
for _ in range(900):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": "Hi"}, {"role": 7, "content": "Hi"}], "messages[1].role"),
        ([{"role": "", "content": "Hi"}], "messages[0].role"),
        ([{"role": "user", "content": 7}], "messages[0].content"),
        ([{"role": "user", "content": {"type": "text", "text": "Hi"}}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text", "text": 7}]}], "messages[0].content[0]"),
        ([{"role": "assistant", "content": [{"type": "image_url"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": "Hi", "extra": NESTED}], "messages"),
    ],
)
async def test_impossible_messages_are_named(server: Server, messages: list[Any], param: str) -> None:
    status, answer = await server.chat(messages, echo=True)
    assert status == 400
    assert check_error(answer)["param"] == param


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {"url": "x"}}, {"type": ["text"]}])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
async def test_a_part_that_is_no_text_is_unsupported(server: Server, path: str, part: dict[str, Any]) -> None:
    status, answer = await server.post(path, {"messages": [{"role": "user", "content": ["Look:", part]}]})
    error = check_error(answer)
    assert (status, error["param"], error["code"]) == (400, "messages[0].content[1]", "unsupported_parameter")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_body_that_is_not_json_by_its_own_account(server: Server, content_type: str) -> None:
    headers = {"Content-Type": content_type}
    async with server.http.post(f"{server.url}/v1/completions", data=b'{"prompt":"x"}', headers=headers) as response:
        assert response.status == 415
        check_error(await response.json())


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "application/x+json"])
async def test_a_body_that_is_json(server: Server, content_type: str) -> None:
    headers = {"Content-Type": content_type}
    async with server.http.post(f"{server.url}/v1/completions", data=b'{"prompt":"x"}', headers=headers) as response:
        assert response.status == 200


async def test_a_body_above_the_limit_is_413(start_server: StartServer) -> None:
    server = await start_server(max_body_size=1000)
    status, answer = await server.complete("x" * 2000)
    assert status == 413
    check_error(answer)


@pytest.mark.parametrize(
    "request_text",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 40_000 + b"\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: nine\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_what_is_not_http_gets_an_error_object_too(server: Server, request_text: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
    writer.write(request_text)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    assert b"\r\nX-Request-Id: " in head
    assert b"\r\nServer: pagewire\r\n" in head
    check_error(strict_json(body))


async def test_an_expectation_that_cannot_be_met_gets_an_error_object_too(server: Server) -> None:
    headers = {"Expect": "foo", "X-Request-Id": "mine"}
    async with server.http.post(f"{server.url}/v1/completions", data=b"{}", headers=headers) as response:
        assert (response.status, response.headers["X-Request-Id"]) == (417, "mine")
        check_error(await response.json())


async def test_a_body_that_is_not_coded_as_it_says_is_a_400_and_no_fault_of_ours(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    async with server.http.post(f"{server.url}/v1/chat/completions", data=b"no gzip", headers=headers) as response:
        assert response.status == 400
        assert "cannot be read" in (await response.json())["error"]["message"]
    await until(lambda: not server.listener.connections)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("coding", ["foo", "gzip, gzip", "br"])
async def test_a_content_coding_that_is_unknown_is_unsupported(server: Server, coding: str) -> None:
    headers = {"Content-Encoding": coding, "Content-Type": "application/json"}
    async with server.http.post(f"{server.url}/v1/completions", data=b'{"prompt":"x"}', headers=headers) as response:
        assert response.status == 415
        assert "gzip" in check_error(await response.json())["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize", "/v1/messages/count_tokens"])
async def test_half_a_character_that_a_template_makes_is_a_400(start_server: StartServer, path: str) -> None:
    server = await start_server(chat_template="{{ '\\ud800' }}x")
    status, answer = await server.post(path, {"model": "toy", "messages": [{"role": "user", "content": "Hi"}]})
    assert status == 400
    assert "surrogate" in answer["error"]["message"]


UNREAD: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/chat/completions", {"documents": [{"text": "x"}]}, "documents"),
    ("/v1/chat/completions", {"reasoning_effort": "low", "stream": True}, "reasoning_effort"),
    ("/v1/chat/completions/render", {"chat_template_kwargs": {"zzz": False}}, "chat_template_kwargs.zzz"),
    ("/tokenize", {"chat_template_kwargs": {"zzz": 1}}, "chat_template_kwargs.zzz"),
    ("/v1/responses", {"reasoning": {"effort": "low"}}, "reasoning.effort"),
    ("/v1/responses", {"chat_template_kwargs": {"zzz": 1}}, "chat_template_kwargs.zzz"),
    ("/v1/messages", {"output_config": {"effort": "low"}}, "output_config.effort"),
    ("/v1/messages/count_tokens", {"output_config": {"effort": "low"}}, "output_config.effort"),
]


@pytest.mark.parametrize(("path", "fields", "name"), UNREAD)
@pytest.mark.parametrize("read", [False, True])
async def test_what_the_chat_template_does_not_read_is_ignored(
    start_server: StartServer, path: str, fields: dict[str, Any], name: str, read: bool
) -> None:
    variables = "{{ documents }}{{ reasoning_effort }}{{ zzz }}" if read else ""
    server = await start_server(chat_template=variables + "{{ messages[0].content }}")
    asked = {"input": "Hi"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "Hi"}]}
    body = {**asked, **({"max_tokens": 1} if path == "/v1/messages" else {}), **fields}
    async with server.http.post(server.url + path, json=body) as response:
        assert (response.status, response.headers.get("X-Ignored-Params")) == (200, None if read else name)


async def test_a_strict_server_says_that_the_template_does_not_read_it(start_server: StartServer) -> None:
    server = await start_server(strict_params=True)
    status, answer = await server.chat(chat_template_kwargs={"zzz": 1})
    error = check_error(answer)
    assert (status, error["param"], error["code"]) == (400, "chat_template_kwargs.zzz", "unknown_parameter")
    assert "the chat template does not read it" in error["message"]


async def test_ignored_fields_are_named_in_a_header(server: Server, start_server: StartServer) -> None:
    body = {"prompt": "x", "user": "me", "unheard_of": 1}
    for stream in (False, True):
        async with server.http.post(f"{server.url}/v1/completions", json={**body, "stream": stream}) as response:
            assert response.status == 200
            assert response.headers["X-Ignored-Params"] == "user, unheard_of"


async def test_strict_params_refuses_them(start_server: StartServer) -> None:
    server = await start_server(strict_params=True)
    status, answer = await server.complete(user="me")
    assert status == 400
    assert check_error(answer)["param"] == "user"


async def test_too_many_open_requests_are_turned_away(start_server: StartServer, engine: FakeEngine) -> None:
    engine.script = lambda request: [Silence()]
    server = await start_server(max_inflight=2)
    waiting = [asyncio.create_task(server.complete()) for _ in range(2)]
    await until(lambda: len(engine.received) == 2)
    async with server.http.post(f"{server.url}/v1/completions", json={"prompt": "x"}) as response:
        assert response.status == 429
        assert response.headers["Retry-After"]
        assert check_error(await response.json())["type"] == "rate_limit_error"
    for task in waiting:
        task.cancel()
    await until(lambda: server.frontend.inflight == 0)


async def test_without_an_engine_requests_get_503_and_health_is_well(start_server: StartServer) -> None:
    server = await start_server(with_engine=False)
    for status, answer in (
        await server.chat(),
        await server.complete(),
        await server.get("/v1/models/toy"),
        await server.get("/ready"),
    ):
        assert status == 503
        assert check_error(answer)["type"] == "server_error"
    assert await server.get("/health") == (200, {"status": "ok"})
    assert await server.get("/v1/models") == (200, {"object": "list", "data": []})


async def test_while_draining_new_requests_get_503(server: Server) -> None:
    server.frontend.draining = True
    assert (await server.chat())[0] == 503
    status, answer = await server.get("/ready")
    assert status == 503
    assert "shutting down" in check_error(answer)["message"]


async def test_a_bug_is_a_500_without_its_trace(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.frontend, "catalog", None)
    status, answer = await server.chat()
    assert status == 500
    assert "NoneType" not in check_error(answer)["message"]


async def test_a_tokenizer_that_cannot_be_read_is_a_500(start_server: StartServer, engine: FakeEngine) -> None:
    engine.model = toy_model(tokenizer_json="{}")
    server = await start_server()
    assert (await server.chat())[0] == 500
    assert (await server.get("/health"))[0] == 200


CLASSES = [
    ({"temperature": 9}, openai.BadRequestError),
    ({"model": "other"}, openai.NotFoundError),
]


@pytest.mark.parametrize(("fields", "expected"), CLASSES)
async def test_openais_client_raises_its_classes_for_bad_requests(
    server: Server, fields: dict[str, Any], expected: type[openai.APIStatusError]
) -> None:
    with pytest.raises(expected) as caught:
        await server.client().completions.create(**{"model": "toy", "prompt": "x", **fields})
    assert caught.value.request_id


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("overloaded", openai.RateLimitError),
        ("draining", openai.InternalServerError),
        ("internal", openai.InternalServerError),
    ],
)
async def test_openais_client_raises_its_classes_for_refusals(
    server: Server, engine: FakeEngine, code: Any, expected: type[openai.APIStatusError]
) -> None:
    engine.script = lambda request: [Refuse(Error(code, "no"))]
    with pytest.raises(expected, match="no"):
        await server.client().completions.create(model="toy", prompt="x", stream=True)


async def test_a_deterministic_failure_is_not_tried_again(server: Server, engine: FakeEngine) -> None:
    engine.script = lambda request: [Refuse(Error("internal", "no"))]
    with pytest.raises(openai.InternalServerError):
        await server.client(max_retries=2).completions.create(model="toy", prompt="x")
    assert len(engine.received) == 1


class RustPanic(BaseException):
    """As PyO3 makes one when a library written in Rust fails: no Exception."""


def panic(*arguments: Any, **fields: Any) -> Any:
    raise RustPanic("it was not expected")


@pytest.mark.parametrize("text", ["Hi", "Hi " * 2000], ids=["at once", "in a thread"])
async def test_a_panic_of_the_tokenizer_is_an_error_of_the_server(
    start_server: StartServer, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "certainly_exceeds", lambda *_: False)
    server = await start_server()
    served = await server.frontend.catalog.find("toy")
    with monkeypatch.context() as patch:
        patch.setattr(served.tokenizer, "_tokenizer", type("Panicking", (), {"encode_batch_fast": panic})())
        status, answer = await server.complete(text)
    assert (status, check_error(answer)["message"]) == (500, "The server failed to answer this request.")
    assert (await server.complete("Hi"))[0] == 200


async def test_a_panic_of_a_grammar_refuses_the_grammar(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    library = type("Panicking", (), {"validate_grammar_with_warnings": panic})
    monkeypatch.setattr("pagewire.frontend.grammars.sources.LLMatcher", library)
    status, answer = await server.chat(response_format={"type": "json_object"})
    assert (status, check_error(answer)["param"]) == (400, "response_format")
