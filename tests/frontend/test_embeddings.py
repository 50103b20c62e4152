"""``POST /v1/embeddings``: forms of input and output, what is refused, and OpenAI's own client."""

import asyncio
import struct
from typing import Any

import pytest
from msgspec import structs

from tests.fake_engine import LIMITS, FakeEngine, toy_model, until
from tests.frontend.running import Server, StartServer

VECTOR = (0.5, -0.25, 1e-8)


@pytest.fixture
def engine(engine: FakeEngine) -> FakeEngine:
    """An engine that gives everyone the same embedding."""
    engine.model = toy_model(embedding_size=len(VECTOR))
    engine.embedding = struct.pack("<3f", *VECTOR)
    return engine


async def embed(server: Server, given: Any = "Hi", **fields: Any) -> tuple[int, Any]:
    return await server.post("/v1/embeddings", {"model": "toy", "input": given, **fields})


async def test_answer_has_the_shape_of_openai(server: Server) -> None:
    status, answer = await embed(server)
    [entry] = answer.pop("data")
    assert status == 200
    assert entry.pop("embedding") == pytest.approx(VECTOR)
    assert entry == {"object": "embedding", "index": 0}
    assert answer == {"object": "list", "model": "toy", "usage": {"prompt_tokens": 2, "total_tokens": 2}}


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        ("Hi", [b"Hi"]),
        (["Hi", "Ho"], [b"Hi", b"Ho"]),
        ([72, 105], [b"Hi"]),
        ([[72, 105], [72]], [b"Hi", b"H"]),
        (["a"] * 100, [b"a"] * 100),
    ],
)
async def test_every_form_of_input_gets_an_embedding_each(
    server: Server, engine: FakeEngine, given: Any, ids: list[bytes]
) -> None:
    _, answer = await embed(server, given)
    assert [bytes(request.prompt) for request in engine.received] == ids
    assert all(request.embed for request in engine.received)
    assert [entry["index"] for entry in answer["data"]] == list(range(len(ids)))
    assert answer["usage"]["prompt_tokens"] == sum(map(len, ids))


async def test_openai_client_reads_both_formats(server: Server) -> None:
    client = server.client()
    # Without a format the client asks for base64 and decodes it.
    for fields in ({}, {"encoding_format": "float"}):
        answer = await client.embeddings.create(model="toy", input="Hi", **fields)  # type: ignore[arg-type]
        assert answer.data[0].embedding == pytest.approx(VECTOR)


async def test_base64_is_little_endian_float32(server: Server) -> None:
    _, answer = await embed(server, encoding_format="base64")
    assert answer["data"][0]["embedding"] == "AAAAPwAAgL53zCsy"


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([], "input"),
        ("", "input"),
        (7, "input"),
        ({}, "input"),
        (["a", ""], "input[1]"),
        ([72, "a"], "input[1]"),
        ([999999], "input[0]"),
        ([[72], []], "input[1]"),
        (["a"] * 2049, "input"),
        (["a", "x" * 513], "input[1]"),
        ([72] * 513, "input"),
    ],
)
async def test_impossible_inputs_are_named(server: Server, engine: FakeEngine, given: Any, param: str) -> None:
    status, answer = await embed(server, given)
    assert status == 400
    assert answer["error"]["param"] == param
    assert engine.received == []


@pytest.mark.parametrize(("dimensions", "status"), [(3, 200), (2, 400), (4, 400)])
async def test_dimensions_are_refused_unless_they_are_the_models(server: Server, dimensions: int, status: int) -> None:
    got, answer = await embed(server, dimensions=dimensions)
    assert got == status
    if status == 400:
        assert (answer["error"]["param"], answer["error"]["code"]) == ("dimensions", "unsupported_parameter")


async def test_an_input_as_long_as_the_context_fits(server: Server) -> None:
    status, _ = await embed(server, "x" * LIMITS.max_model_len)
    assert status == 200


@pytest.mark.parametrize(("keep", "prompt"), [(2, b"23"), (-1, b"0123"), (4, b"0123"), (9, b"0123")])
async def test_inputs_are_cut_to_their_last_tokens_on_request(
    server: Server, engine: FakeEngine, keep: int, prompt: bytes
) -> None:
    await embed(server, "0123", truncate_prompt_tokens=keep)
    assert bytes(engine.received[0].prompt) == prompt


async def test_whatever_is_longer_than_the_context_can_be_cut_to_it(server: Server, engine: FakeEngine) -> None:
    for given in ("x" * 10_000, [120] * 10_000):
        status, _ = await embed(server, given, truncate_prompt_tokens=-1)
        assert status == 200
    assert [len(request.prompt) for request in engine.received] == [LIMITS.max_model_len] * 2


async def test_a_model_without_embeddings_refuses(start_server: StartServer, engine: FakeEngine) -> None:
    engine.model = structs.replace(engine.model, embedding_size=0)
    status, answer = await embed(await start_server())
    assert (status, answer["error"]["param"]) == (400, "model")


async def test_an_engine_that_answers_without_an_embedding_is_an_error(server: Server, engine: FakeEngine) -> None:
    engine.embedding = None
    status, answer = await embed(server, ["a", "b"])
    assert (status, answer["error"]["type"]) == (500, "server_error")


async def test_a_client_that_goes_is_no_error(
    server: Server, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any) -> None:
        await asyncio.Event().wait()

    def ended(reason: str) -> float | None:
        labels = {"model_name": "toy", "finished_reason": reason}
        return server.frontend.metrics.registry.get_sample_value("pagewire_request_success_total", labels)

    monkeypatch.setattr(FakeEngine, "_send_delta", never)
    waiting = asyncio.create_task(embed(server))
    await until(lambda: engine.received)
    waiting.cancel()
    await until(lambda: ended("abort") == 1)
    assert not ended("error")
