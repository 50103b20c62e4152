"""The mailbox between an engine link and a request handler."""

import asyncio

import pytest

from pagewire.frontend.generation import EngineError, Generation, merge
from pagewire.protocol.messages import Delta, Error, Finish, Logprob, Usage

END = Finish("stop", Usage(prompt=1, completion=2))
LOST = Error("internal", "the engine went away", retryable=True)


@pytest.fixture
def aborted() -> list[int]:
    return []


@pytest.fixture
def generation(aborted: list[int]) -> Generation:
    return Generation(7, aborted.append)


async def collect(generation: Generation) -> list[Delta]:
    return [delta async for delta in generation]


async def test_deltas_arrive_in_order_and_end_with_the_finishing_one(generation: Generation) -> None:
    reader = asyncio.create_task(collect(generation))
    for delta in (Delta(7), Delta(7, "a", (1,)), Delta(7, "b", (2,), finish=END)):
        generation.push(delta)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert [delta.text for delta in await reader] == ["a", "b"]


async def test_deltas_that_wait_are_merged(generation: Generation) -> None:
    generation.push(Delta(7, "a", (1,)))
    generation.push(Delta(7, "b", (2,), finish=END))
    assert await collect(generation) == [Delta(7, "ab", (1, 2), finish=END)]


async def test_acceptance_is_an_empty_delta(generation: Generation) -> None:
    generation.push(Delta(7))
    await generation.accepted()


async def test_a_refusal_raises_before_acceptance(generation: Generation) -> None:
    generation.push(Delta(7, finish=Finish("error", END.usage, error=LOST)))
    with pytest.raises(EngineError, match="went away"):
        await generation.accepted()


async def test_text_that_came_before_a_failure_is_not_lost(generation: Generation) -> None:
    generation.push(Delta(7, "a", (1,)))
    generation.fail(LOST)
    assert (await anext(generation)).text == "a"
    with pytest.raises(EngineError):
        await anext(generation)


async def test_leaving_early_aborts_once(generation: Generation, aborted: list[int]) -> None:
    async with generation:
        generation.push(Delta(7, "a", (1,)))
    generation.close()
    assert aborted == [7]


async def test_leaving_after_the_end_aborts_nothing(generation: Generation, aborted: list[int]) -> None:
    async with generation:
        generation.push(Delta(7, "a", (1,), finish=END))
    assert aborted == []


def test_merging_keeps_logprobs_of_every_token() -> None:
    entries = [Logprob(token, -0.5, "x", b"x", 1, token) for token in (0, 1)]
    merged = merge([Delta(7, "x", (0,), (entries[0],)), Delta(7, "x", (1,), (entries[1],))])
    assert merged.logprobs == tuple(entries)


async def test_a_complete_answer_is_ended_and_what_comes_after_it_is_left_out() -> None:
    ended: list[int] = []
    generation = Generation(7, ended.append, ended.append, lambda delta: "b" in delta.text)
    for token, text in enumerate("abc"):
        generation.push(Delta(7, text, (token,)))
    assert (await anext(generation)).text == "ab"
    assert ended == [7]
    generation.push(Delta(7, "d", (3,)))
    generation.push(Delta(7, "e", (4,), finish=Finish("length", Usage(prompt=1, completion=5, cached=1))))
    assert await collect(generation) == [Delta(7, finish=Finish("stop", Usage(prompt=1, completion=2, cached=1)))]
    assert ended == [7]
