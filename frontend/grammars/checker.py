"""Builds and checks grammars off the event loop, and remembers what it found."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from pagewire.frontend.grammars.errors import GrammarError
from pagewire.frontend.grammars.sources import Kind, grammar_source
from pagewire.protocol.grammar import compiler_pool
from pagewire.protocol.panics import Panic

logger = logging.getLogger(__name__)

MAX_SECONDS = 5.0
_MAX_KEPT = 256


@dataclass(frozen=True, slots=True)
class Asked:
    """A grammar as a client asks for it; ``param`` is the field that it stands in."""

    kind: Kind
    value: Any
    param: str


class BusyError(Exception):
    """No thread came free to check a grammar, of which nothing is known therefore."""


class GrammarChecker:
    """Turns what is asked for into sources for engines. Its threads start with the first grammar.

    What is remembered is true of a grammar. That it took long is not: the machine may have been busy.
    """

    def __init__(self, max_seconds: float = MAX_SECONDS) -> None:
        """A grammar that takes longer than ``max_seconds`` to check is refused; it waits for a thread as long."""
        self._max_seconds = max_seconds
        self._pool: Executor | None = None
        self._checks: set[Future[str]] = set()
        self._known: OrderedDict[bytes, str | GrammarError] = OrderedDict()

    async def source(self, asked: Asked) -> str:
        """The source of a grammar; raises GrammarError, and BusyError if others take all the time there is."""
        return await self.made((asked.kind, asked.value), lambda: grammar_source(asked.kind, asked.value))

    async def made(self, parts: Any, make: Callable[[], str]) -> str:
        """Likewise the source that ``make`` gives or raises GrammarError for; ``parts`` is all that decides on it."""
        key = _key(parts)
        known = self._known.get(key)
        if known is None:
            known = await self._check(make)
            self._known[key] = known
            if len(self._known) > _MAX_KEPT:
                self._known.popitem(last=False)
        if isinstance(known, GrammarError):
            raise GrammarError(known.message, known.path)
        return known

    def close(self) -> None:
        """Let no further checks begin."""
        if self._pool:
            self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def running(self) -> bool:
        """Whether a grammar is being checked. A thread cannot be stopped, whoever waits for it."""
        return any(check.running() for check in self._checks)

    async def _check(self, make: Callable[[], str]) -> str | GrammarError:
        if self._pool is None:
            self._pool = compiler_pool()
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()

        def check() -> str:
            loop.call_soon_threadsafe(begun.set)
            return make()

        checking = self._pool.submit(check)
        self._checks.add(checking)
        checking.add_done_callback(self._checks.discard)
        result = asyncio.wrap_future(checking)
        try:
            await self._begin(begun, result)
            return await asyncio.wait_for(result, self._max_seconds)
        except GrammarError as error:
            return error
        except TimeoutError:
            raise GrammarError(f"checking it takes longer than {self._max_seconds:g} s") from None
        except RecursionError:
            return GrammarError("it is nested too deeply")
        except Panic as panic:
            logger.warning("a grammar cannot be checked: %s", panic)
            return GrammarError("it cannot be used")

    async def _begin(self, begun: asyncio.Event, result: asyncio.Future[str]) -> None:
        """Wait for a thread; its time in the queue is no grammar's fault."""
        try:
            await asyncio.wait_for(begun.wait(), self._max_seconds)
        except BaseException as fault:
            result.cancel()
            if isinstance(fault, TimeoutError):
                raise BusyError from None
            raise


def _key(parts: Any) -> bytes:
    try:
        # JSON has integers of any size, which MessagePack has not.
        return blake2b(msgspec.json.encode(parts), digest_size=32).digest()
    except RecursionError:
        raise GrammarError("it is nested too deeply") from None
