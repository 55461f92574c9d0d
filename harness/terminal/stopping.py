"""Signals that end a command: raised where it is, so that all it began is undone behind it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# One wish to end often comes twice (a terminal and who waits for it both say so): the second must
# not interrupt what the first set going. After a while another is one of its own.
_AGAIN_S = 5.0


class Stopped(KeyboardInterrupt):
    """A signal ended the command; its notes say what is kept."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def stoppable() -> Iterator[None]:
    """Have the signals of STOPS raise Stopped in the block, but for those that are ignored.

    As with nohup, and with SIGINT in the background of a script.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard_s = -_AGAIN_S

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal heard_s
        before_s, heard_s = heard_s, time.monotonic()
        if heard_s - before_s >= _AGAIN_S:
            raise Stopped(number)
        heard_s = before_s

    before = {number: signal.getsignal(number) for number in STOPS}
    ours = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])
