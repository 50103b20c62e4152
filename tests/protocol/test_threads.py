"""A pool whose work does not keep the process, and that otherwise works as any executor."""

import gc
import subprocess
import sys
import threading

import pytest

from pagewire.protocol.threads import DaemonPool

TIMEOUT_S = 60
SCRIPT = """
import threading, time
from pagewire.protocol.threads import DaemonPool
pool, begun = DaemonPool(1, "test", 1 << 20), threading.Event()
pool.submit(lambda: (begun.set(), time.sleep({seconds}), print("ended", flush=True)))
pool.submit(print, "begun too late")
begun.wait()
"""


@pytest.mark.parametrize(("seconds", "output"), [(0.1, "ended\n"), (600, "")])
def test_a_process_ends_without_its_work_unless_that_is_nearly_done(seconds: float, output: str) -> None:
    command = (sys.executable, "-c", SCRIPT.format(seconds=seconds))
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, output, "")


def test_work_is_done_and_its_failures_are_told() -> None:
    pool = DaemonPool(2, "test", 1 << 20)
    assert list(pool.map(divmod, (7, 9), (2, 2), timeout=TIMEOUT_S)) == [(3, 1), (4, 1)]
    with pytest.raises(ZeroDivisionError):
        pool.submit(divmod, 1, 0).result(TIMEOUT_S)


def test_what_has_not_begun_when_the_pool_is_shut_down_never_does() -> None:
    pool, begun, released = DaemonPool(1, "test", 1 << 20), threading.Event(), threading.Event()
    first = pool.submit(lambda: (begun.set(), released.wait(TIMEOUT_S)))
    second = pool.submit(released.wait)
    assert begun.wait(TIMEOUT_S)
    pool.shutdown()
    assert (first.done(), second.cancelled()) == (False, True)
    released.set()
    assert first.result(TIMEOUT_S) == (None, True)


def test_the_threads_of_a_pool_that_is_dropped_end() -> None:
    pool = DaemonPool(2, "test", 1 << 20)
    pool.submit(int).result(TIMEOUT_S)
    threads = pool.threads
    del pool
    gc.collect()
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
