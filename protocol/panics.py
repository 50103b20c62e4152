"""Panics of libraries written in Rust (tokenizers, llguidance), made ordinary exceptions.

PyO3 raises them as an exception that is no ``Exception``, so that nobody catches it by accident; a server must, since
what panicked was the work for one request. Every call of such a library with something of a request's is made within
``no_panics``; whoever answers for the request then finds a ``Panic``.
"""

import asyncio
from contextlib import ContextDecorator
from types import TracebackType

# All that may go through: what is no failure at all, and failures that everybody expects.
_NO_PANICS = (Exception, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)


class Panic(RuntimeError):
    """A library failed in a way that it does not expect itself."""


class no_panics(ContextDecorator):
    """``with no_panics():`` or ``@no_panics()``: a panic leaves the block or function as ``Panic``."""

    def __enter__(self) -> None:
        """Nothing is done before."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raise ``Panic`` instead of a panic."""
        if error is not None and not isinstance(error, _NO_PANICS):
            raise Panic(f"a library panicked: {error}") from error
