import asyncio

import pytest

from pagewire.protocol.panics import Panic, no_panics


class RustPanic(BaseException):
    """As PyO3 makes one."""


def test_a_panic_becomes_an_exception_that_says_what_it_was():
    with pytest.raises(Panic, match="index out of bounds") as caught, no_panics():
        raise RustPanic("index out of bounds")
    assert isinstance(caught.value.__cause__, RustPanic)


@pytest.mark.parametrize(
    "kind", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, StopAsyncIteration]
)
def test_what_is_no_panic_passes(kind):
    with pytest.raises(kind), no_panics():
        raise kind


def test_a_function_can_be_free_of_panics():
    @no_panics()
    def fail(text: str) -> None:
        raise RustPanic(text)

    for text in ("one", "two"):
        with pytest.raises(Panic, match=text):
            fail(text)
