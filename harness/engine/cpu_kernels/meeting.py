"""Where threads of one team wait for one another: a while awake, then parked by the kernel.

A meeting of threads that come at about the same time costs well under a microsecond, and being
woken by the kernel tens of them; so who waits looks again SPINS times (about 40 us, 2.6 GHz Zen 4)
and only then parks, by Linux's futex (Drepper, "Futexes are tricky", 2011). Nobody spins longer:
between mini-batches, or where another program holds a processor, threads are parked.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

import numpy as np
from numba.core import types

from harness.engine.cpu_kernels import atomics
from harness.engine.cpu_kernels.addresses import INLINE, N_THREADS, TEAM, word
from harness.machine.compiled import compiled_with

SPINS = 2000
# int64 words of a team, each with a cache line of its own; behind a word that is waited for: how
# many are parked there.
JOB, READY, STOP, CALLS, N_CALLS = 0, 8, 16, 24, 25
# Two meetings, each with how many are there, and a cache line on how often it was held: within a
# job, and at its end.
WITHIN, AT_END, _HELD = 32, 48, 8
FAILED, FIRST = 64, 65  # how many threads failed in this job, and the context of the first
N_TEAM_WORDS = 72
PARKED, _BYTES = 1, 8
_WAIT, _WAKE, _ALL = 128, 129, 2**30  # FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE
# The number of the system call futex, and whether its 32 bits are the first of a word.
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0)
HAS_FUTEX = sys.platform == "linux" and _FUTEX != 0 and sys.byteorder == "little"
_syscall: Any = types.ExternalFunction(
    "syscall", types.intp(types.intp, types.intp, types.intp, types.intp, types.intp)
)


@compiled_with(**INLINE)
def meet(context: int) -> bool:  # pragma: no cover - compiled
    """Go on when all threads of the team are here; each must come as often as the others.

    Returns whether to go on at all: False once a thread has failed, which nobody waits for.
    """
    n_threads = word(context, N_THREADS)
    if n_threads == 1:
        return True
    team = word(context, TEAM)
    _come_together(team, WITHIN, n_threads)
    n_failed: int = atomics.load(team + _BYTES * FAILED)
    return n_failed == 0


@compiled_with(**INLINE)
def meet_at_end(context: int) -> None:  # pragma: no cover - compiled
    """Go on when all threads are done with a job, or have given it up."""
    n_threads = word(context, N_THREADS)
    if n_threads > 1:
        _come_together(word(context, TEAM), AT_END, n_threads)


@compiled_with(**INLINE)
def fail(context: int) -> None:  # pragma: no cover - compiled
    """Let all threads give up this job for an error that this one's context holds."""
    team = word(context, TEAM)
    if atomics.add(team + _BYTES * FAILED, np.int64(1)) == 0:
        atomics.store(team + _BYTES * FIRST, context)
    # Whoever waits goes on. Who comes later has read this word before it looks for failures.
    held = team + _BYTES * (WITHIN + _HELD)
    tell(held, atomics.load(held) + 1)


@compiled_with(**INLINE)
def begin_anew(context: int) -> None:  # pragma: no cover - compiled
    """Forget a failure, once all have met at the end."""
    team = word(context, TEAM)
    atomics.store(team + _BYTES * FAILED, np.int64(0))
    atomics.store(team + _BYTES * WITHIN, np.int64(0))


@compiled_with(**INLINE)
def _come_together(team: int, meeting: int, n_threads: int) -> None:  # pragma: no cover - compiled
    there, held = team + _BYTES * meeting, team + _BYTES * (meeting + _HELD)
    times = atomics.load(held)
    if meeting == WITHIN and atomics.load(team + _BYTES * FAILED) != 0:
        return
    if atomics.add(there, np.int64(1)) == n_threads - 1:
        atomics.store(there, np.int64(0))
        tell(held, times + 1)
    else:
        wait_while(held, times)


@compiled_with(**INLINE)
def tell(address: int, value: int) -> None:  # pragma: no cover - compiled
    """Write a word, and wake whoever is parked at it."""
    atomics.store(address, value)
    if atomics.load(address + _BYTES * PARKED) > 0:
        _syscall(_FUTEX, address, _WAKE, _ALL, 0)


@compiled_with(**INLINE)
def wait_while(address: int, value: int) -> None:  # pragma: no cover - compiled
    """Wait until a word is another one.

    Whoever is about to park has said so before the kernel compares the word, and `tell` looks for
    such after it has written: one of both sees the other.
    """
    for _ in range(SPINS):
        if atomics.load(address) != value:
            return
        atomics.pause()
    atomics.add(address + _BYTES * PARKED, np.int64(1))
    while atomics.load(address) == value:
        _syscall(_FUTEX, address, _WAIT, value & 0xFFFFFFFF, 0)
    atomics.add(address + _BYTES * PARKED, np.int64(-1))
