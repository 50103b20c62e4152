"""Several engines behind one frontend: requests go by their model's name."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fake_engine import FakeEngine, say, toy_model, until
from tests.frontend.running import Server, StartServer


@pytest.fixture
async def second(tmp_path: Path) -> AsyncIterator[FakeEngine]:
    """Another engine with another model."""
    engine = FakeEngine(f"ipc://{tmp_path}/second", say("I am second."), toy_model(name="org/second", path="/models/b"))
    async with engine.serving():
        yield engine


@pytest.fixture
async def server(start_server: StartServer, engine: FakeEngine, second: FakeEngine) -> Server:
    """A frontend that is connected to both."""
    server = await start_server(engine=(engine.address, second.address))
    await until(lambda: len(server.frontend.pool.models()) == 2)
    return server


async def test_each_model_is_answered_by_its_engine(server: Server, engine: FakeEngine, second: FakeEngine) -> None:
    for name, text in (("toy", "Hello there!"), ("org/second", "I am second."), ("b", "I am second.")):
        status, answer = await server.chat(model=name)
        assert status == 200
        assert answer["choices"][0]["message"]["content"] == text
        assert answer["model"] == name
    assert (len(engine.received), len(second.received)) == (1, 2)


async def test_a_request_without_a_model_goes_to_the_first(server: Server, engine: FakeEngine) -> None:
    await server.chat(model=None)
    assert len(engine.received) == 1


async def test_all_models_are_listed_under_all_their_names(server: Server) -> None:
    _, listing = await server.get("/v1/models")
    assert [(entry["id"], entry["root"]) for entry in listing["data"]] == [
        ("toy", "toy"),
        ("toy-path", "toy"),
        ("org/second", "org/second"),
        ("b", "org/second"),
    ]
    _, one = await server.get("/v1/models/org/second")
    assert (one["id"], one["object"]) == ("org/second", "model")


async def test_an_unknown_model_is_not_found(server: Server) -> None:
    status, answer = await server.chat(model="third")
    assert (status, answer["error"]["code"]) == (404, "model_not_found")


async def test_metrics_tell_the_models_apart(server: Server) -> None:
    await server.chat(model="toy")
    await server.chat(model="b")
    for name in ("toy", "org/second"):
        labels = {"model_name": name, "finished_reason": "stop"}
        assert server.frontend.metrics.registry.get_sample_value("pagewire_request_success_total", labels) == 1


async def test_two_engines_with_one_model_share_its_requests(
    start_server: StartServer, engine: FakeEngine, tmp_path: Path
) -> None:
    twin = FakeEngine(f"ipc://{tmp_path}/twin")
    async with twin.serving():
        server = await start_server(engine=(engine.address, twin.address))
        await until(lambda: len(server.frontend.pool.models()) == 2)
        _, listing = await server.get("/v1/models")
        assert [entry["id"] for entry in listing["data"]] == ["toy", "toy-path"]
        await server.chat(n=2)
        assert (len(engine.received), len(twin.received)) == (1, 1)


async def test_served_names_are_all_names_of_the_first_engines_model(
    start_server: StartServer, engine: FakeEngine, second: FakeEngine
) -> None:
    server = await start_server(engine=(engine.address, second.address), served_model_name=("A", "B"))
    await until(lambda: len(server.frontend.pool.models()) == 2)
    for name in ("A", "B"):
        status, answer = await server.chat(model=name)
        assert (status, answer["model"]) == (200, name)
    assert len(engine.received) == 2
    status, _ = await server.chat(model="toy")
    assert status == 404


async def test_no_other_model_answers_in_a_served_name(
    start_server: StartServer, engine: FakeEngine, tmp_path: Path
) -> None:
    other = FakeEngine(f"ipc://{tmp_path}/other", model=toy_model(name="other", path="/models/other"))
    gone = FakeEngine(f"ipc://{tmp_path}/gone")
    async with other.serving():
        async with gone.serving():
            server = await start_server(engine=(gone.address, other.address), served_model_name=("A",))
            await until(lambda: len(server.frontend.pool.models()) == 2)
            assert [(await server.chat(model=name))[0] for name in ("A", "other", "toy")] == [200, 200, 404]
        await until(lambda: len(server.frontend.pool.models()) == 1)
        assert [(await server.chat(model=name))[0] for name in ("A", "other")] == [503, 200]
