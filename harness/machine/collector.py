"""Python's garbage collector, kept from what a process loads and never gives back."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def made_to_stay() -> Iterator[None]:
    """Let whatever is made in the block stay: the collector looks at it neither now nor later.

    For modules and inputs, which live as long as the process. Among 150 000 objects of a framework
    the collector looks for 0.1 s whenever it is asked, and half a dozen times while they are made.
    """
    with collector_resting():
        try:
            yield
        finally:
            gc.freeze()


@contextmanager
def collector_resting() -> Iterator[None]:
    """Keep the collector from the block alone: what a compiler makes is nearly all in use."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
