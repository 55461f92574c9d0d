"""Time limits for tests that could otherwise wait forever."""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def in_time(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in a block that takes longer, also during a blocking system call."""

    def end(*_: object) -> None:
        raise TimeoutError(f"not over after {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def dies_after(seconds: int) -> Iterator[None]:
    """Kill the process with a traceback, for waits in machine code that hold Python's lock."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
