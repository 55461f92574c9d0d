"""Time limits for tests that could otherwise wait forever."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
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


def wait_for(happened: Callable[[], object], seconds: float = 60.0) -> bool:
    """Wait until something has happened; return whether it has within the seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if happened():
            return True
        time.sleep(0.05)
    return False
