"""Builds and checks grammars off the event loop, and remembers what it found."""

import asyncio
import logging
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
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


class GrammarChecker:
    """Turns what is asked for into sources for engines. Its threads start with the first grammar."""

    def __init__(self, max_seconds: float = MAX_SECONDS) -> None:
        """A grammar that takes longer than ``max_seconds`` to check is refused."""
        self._max_seconds = max_seconds
        self._pool: ThreadPoolExecutor | None = None
        self._known: OrderedDict[bytes, str | GrammarError] = OrderedDict()

    async def source(self, asked: Asked) -> str:
        """The source of a grammar; raises GrammarError."""
        key = _key(asked)
        known = self._known.get(key)
        if known is None:
            known = await self._check(asked)
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

    async def _check(self, asked: Asked) -> str | GrammarError:
        if self._pool is None:
            self._pool = compiler_pool()
        checking = asyncio.get_running_loop().run_in_executor(self._pool, grammar_source, asked.kind, asked.value)
        try:
            return await asyncio.wait_for(checking, self._max_seconds)
        except GrammarError as error:
            return error
        except TimeoutError:
            return GrammarError(f"checking it takes longer than {self._max_seconds:g} s")
        except RecursionError:
            return GrammarError("it is nested too deeply")
        except Panic as panic:
            logger.warning("a grammar cannot be checked: %s", panic)
            return GrammarError("it cannot be used")


def _key(asked: Asked) -> bytes:
    try:
        # JSON has integers of any size, which MessagePack has not.
        return blake2b(msgspec.json.encode((asked.kind, asked.value)), digest_size=32).digest()
    except RecursionError:
        raise GrammarError("it is nested too deeply") from None
