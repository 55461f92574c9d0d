"""Time limits for tests that could otherwise wait forever."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL_S = 0.02


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


def wait_until(
    happened: Callable[[], object],
    seconds: float = 60.0,
    process: subprocess.Popen[bytes] | None = None,
) -> bool:
    """Wait for an event, the end of a process or the time limit; return whether it happened."""
    until = time.monotonic() + seconds
    while not happened() and time.monotonic() < until and (not process or process.poll() is None):
        time.sleep(POLL_S)
    return bool(happened())
