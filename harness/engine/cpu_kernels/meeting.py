"""Where threads of one team wait for one another: a while awake, then parked by the kernel.

A meeting of threads that come at about the same time costs well under a microsecond, and being
woken by the kernel tens of them; so who waits looks again SPINS times (about 40 us, 2.6 GHz Zen 4)
and only then parks, by Linux's futex (Drepper, "Futexes are tricky", 2011). Nobody spins longer:
between mini-batches, or where another program holds a processor, threads are parked.
"""

from __future__ import annotations

import platform
import sys

from harness.compiler.pointers import (
    add_atomic,
    call_system,
    load_atomic,
    pause,
    store_atomic,
    word,
)
from harness.compiler.registry import helper
from harness.engine.cpu_kernels.context import N_THREADS, TEAM

SPINS = 2000
# int64 words of a team, each with a cache line of its own; behind a word that is waited for: how
# many are parked there.
JOB, READY, STOP, CALLS, N_CALLS = 0, 8, 16, 24, 25
# Two meetings, each with how many are there, and a cache line on how often it was held: within a
# job, and at its end.
WITHIN, AT_END, HELD = 32, 48, 8
N_TEAM_WORDS = 64
PARKED, _BYTES = 1, 8
_WAIT, _WAKE, _ALL = 128, 129, 2**30  # FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE
# The number of the system call futex, and whether its 32 bits are the first of a word.
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0)
HAS_FUTEX = sys.platform == "linux" and _FUTEX != 0 and sys.byteorder == "little"


@helper
def meet(context: int) -> None:
    """Go on when all threads of the team are here; each must come as often as the others."""
    n_threads = word(context, N_THREADS)
    if n_threads > 1:
        _come_together(word(context, TEAM), WITHIN, n_threads)


@helper
def meet_at_end(context: int) -> None:
    """Go on when all threads are done with a job."""
    n_threads = word(context, N_THREADS)
    if n_threads > 1:
        _come_together(word(context, TEAM), AT_END, n_threads)


@helper
def _come_together(team: int, meeting: int, n_threads: int) -> None:
    there, held = team + _BYTES * meeting, team + _BYTES * (meeting + HELD)
    times = load_atomic(held)
    if add_atomic(there, 1) == n_threads - 1:
        store_atomic(there, 0)
        tell(held, times + 1)
    else:
        wait_while(held, times)


@helper
def tell(address: int, value: int) -> None:
    """Write a word, and wake whoever is parked at it."""
    store_atomic(address, value)
    if load_atomic(address + _BYTES * PARKED) > 0:
        call_system(_FUTEX, address, _WAKE, _ALL, 0)


@helper
def wait_while(address: int, value: int) -> None:
    """Wait until a word is another one.

    Whoever is about to park has said so before the kernel compares the word, and `tell` looks for
    such after it has written: one of both sees the other.
    """
    for _ in range(SPINS):
        if load_atomic(address) != value:
            return
        pause()
    add_atomic(address + _BYTES * PARKED, 1)
    while load_atomic(address) == value:
        call_system(_FUTEX, address, _WAIT, value & 0xFFFFFFFF, 0)
    add_atomic(address + _BYTES * PARKED, -1)
