import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pagewire.bench.sweep import SweepSettings, search


def capacity(limit: float) -> tuple[Callable[[float], Awaitable[bool]], list[float]]:
    """A probe for a server that holds up to a limit, and the levels it was asked for."""
    tried: list[float] = []

    async def probe(level: float) -> bool:
        tried.append(level)
        return level <= limit

    return probe, tried


@pytest.mark.parametrize("limit", [0.3, 1.0, 7.3, 100.0])
def test_the_highest_level_is_found_to_the_precision(limit: float) -> None:
    probe, tried = capacity(limit)
    found = asyncio.run(search(probe, SweepSettings(start=1.0, limit=1000.0, precision=0.05)))
    assert found is not None
    assert limit / 1.06 <= found <= limit
    assert len(tried) < 20


def test_the_search_does_not_go_beyond_its_limit() -> None:
    probe, tried = capacity(1e9)
    assert asyncio.run(search(probe, SweepSettings(start=3.0, limit=50.0))) == 50
    assert max(tried) == 50


def test_concurrency_is_searched_in_whole_numbers() -> None:
    probe, tried = capacity(13)
    assert asyncio.run(search(probe, SweepSettings(start=1.0, limit=64.0, precision=0.01, whole=True))) == 13
    assert all(level == int(level) for level in tried)


@pytest.mark.parametrize("whole", [False, True])
def test_a_server_that_never_holds_has_no_level(whole: bool) -> None:
    probe, _ = capacity(0)
    assert asyncio.run(search(probe, SweepSettings(start=4.0, limit=64.0, whole=whole))) is None


def test_no_level_is_tried_twice() -> None:
    probe, tried = capacity(37)
    asyncio.run(search(probe, SweepSettings(start=5.0, limit=1000.0, precision=0.02)))
    assert len(tried) == len(set(tried))
