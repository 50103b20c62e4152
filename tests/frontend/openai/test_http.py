"""Where the work for a body is done."""

import threading
from typing import Any

import pytest

from pagewire.frontend.openai.http import BODY, beside


@pytest.mark.parametrize(("size", "on_the_loop"), [(1000, True), (1_000_000, False)])
async def test_the_event_loop_does_no_work_for_large_bodies(size: int, on_the_loop: bool) -> None:
    http: Any = {BODY: b"x" * size}
    assert (await beside(http, threading.get_ident) == threading.get_ident()) is on_the_loop
