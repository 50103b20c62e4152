"""Which engine gets a request, and why none can."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pagewire.frontend.generation import EngineError
from pagewire.frontend.pool import EngineModel, EnginePool
from pagewire.protocol.messages import Load, Sampling
from tests.fake_engine import LIMITS, FakeEngine, Silence, toy_model, until

SAMPLING = Sampling(max_tokens=8)


@pytest.fixture
def engines(tmp_path: Path) -> list[FakeEngine]:
    return [FakeEngine(f"ipc://{tmp_path}/engine-{number}", script=lambda _: [Silence()]) for number in range(2)]


@pytest.fixture
async def pool(engines: list[FakeEngine]) -> AsyncIterator[EnginePool]:
    pool = EnginePool([engine.address for engine in engines], "test")
    pool.start()
    yield pool
    pool.close()


async def test_without_an_engine_it_says_why_for_each_address(pool: EnginePool, engines: list[FakeEngine]) -> None:
    reason = pool.not_ready()
    assert reason is not None
    assert all(f"{engine.address}: no engine has answered yet" in reason for engine in engines)
    assert pool.models() == []
    with pytest.raises(EngineError, match=r"No engine is ready: .*no engine has answered yet") as caught:
        pool.generate(EngineModel("gone", toy_model(), LIMITS), [1], SAMPLING)
    assert caught.value.error.retryable


async def test_one_ready_engine_is_enough(pool: EnginePool, engines: list[FakeEngine]) -> None:
    async with engines[1].serving():
        await until(lambda: pool.not_ready() is None)
        assert [entry.model for entry in pool.models()] == [engines[1].model]
        pool.generate(pool.models()[0], [1], SAMPLING)
        await until(lambda: engines[1].received)


async def test_requests_spread_over_the_engines_of_a_model(pool: EnginePool, engines: list[FakeEngine]) -> None:
    async with engines[0].serving(), engines[1].serving():
        await until(lambda: len(pool.models()) == 2)
        for _ in range(6):
            pool.generate(pool.models()[0], [1], SAMPLING)
        await until(lambda: sum(len(engine.received) for engine in engines) == 6)
        assert [len(engine.received) for engine in engines] == [3, 3]


async def test_a_request_goes_to_an_engine_with_its_model(pool: EnginePool, engines: list[FakeEngine]) -> None:
    engines[1].model = toy_model(name="other")
    async with engines[0].serving(), engines[1].serving():
        await until(lambda: len(pool.models()) == 2)
        (other,) = [entry for entry in pool.models() if entry.model.name == "other"]
        for _ in range(3):
            pool.generate(other, [1], SAMPLING)
        await until(lambda: len(engines[1].received) == 3)
        assert engines[0].received == []


async def test_a_model_whose_engine_left_is_not_served_by_another(pool: EnginePool, engines: list[FakeEngine]) -> None:
    engines[1].model = toy_model(name="other")
    async with engines[0].serving():
        async with engines[1].serving():
            await until(lambda: len(pool.models()) == 2)
            (other,) = [entry for entry in pool.models() if entry.model.name == "other"]
        await until(lambda: len(pool.models()) == 1)
        with pytest.raises(EngineError, match="no engine serves other"):
            pool.generate(other, [1], SAMPLING)


async def test_a_crash_ends_only_the_requests_of_its_engine(pool: EnginePool, engines: list[FakeEngine]) -> None:
    async with engines[0].serving():
        async with engines[1].serving():
            await until(lambda: len(pool.models()) == 2)
            first, second = (pool.generate(pool.models()[0], [1], SAMPLING) for _ in range(2))
            await first.accepted()
            await second.accepted()
        with pytest.raises(EngineError, match="the engine went away"):
            await asyncio.wait_for(anext(second), 2)
        assert pool.not_ready() is None
        assert [link.num_open for link in pool.links] == [1, 0]


async def test_loads_keep_an_engine_that_was_lost(pool: EnginePool, engines: list[FakeEngine]) -> None:
    engines[0].load = Load(running=2)
    async with engines[0].serving():
        await until(lambda: pool.not_ready() is None)
    await until(lambda: pool.not_ready() is not None)
    assert [(load.running, ready) for _, load, ready in pool.loads()] == [(2, False)]
