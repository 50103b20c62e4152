"""A pool of threads that does not keep its process from ending, as Python's own does until all its work is done."""

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Work that ends while the interpreter is taken down crashes the process. What is short is let end before that.
_GRACE_S = 1.0

_Work = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


class DaemonPool(Executor):
    """Runs what is submitted, in order. Once it is dropped, shut down, or the process ends, nothing more begins."""

    def __init__(self, num_threads: int, name: str, stack_bytes: int) -> None:
        """Start the threads, with a stack of their own size."""
        self._work: _Work = SimpleQueue()
        self.threads = [
            threading.Thread(target=_run_all, args=(self._work,), name=f"{name}-{number}", daemon=True)
            for number in range(num_threads)
        ]
        usual = threading.stack_size(stack_bytes)
        try:
            for thread in self.threads:
                thread.start()
        finally:
            threading.stack_size(usual)
        weakref.finalize(self, _stop, self._work, num_threads).atexit = False
        _pools.add(self)

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call when its turn comes; after the end of the pool that is never."""
        future: Future[T] = Future()
        self._work.put((future, partial(call, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what has not begun, whatever ``cancel_futures`` says, and wait for nothing."""
        _stop(self._work, len(self.threads))


_pools: weakref.WeakSet[DaemonPool] = weakref.WeakSet()


def _run_all(work: _Work) -> None:
    while task := work.get():
        future, call = task
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:  # as an executor does: whoever asks for the result gets it
                future.set_exception(error)
        del task, future, call  # not kept while there is nothing to do


def _stop(work: _Work, num_threads: int) -> None:
    try:
        while True:
            if task := work.get_nowait():
                task[0].cancel()
    except Empty:
        for _ in range(num_threads):
            work.put(None)


@atexit.register
def _leave() -> None:
    """Let what is being done come to its end, if that is near."""
    pools = tuple(_pools)
    for pool in pools:
        pool.shutdown()
    until = time.monotonic() + _GRACE_S
    for pool in pools:
        for thread in pool.threads:
            thread.join(max(0.0, until - time.monotonic()))
