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
JOB, ARRIVED, MEETINGS, READY, STOP, CALLS, N_CALLS = 0, 8, 16, 24, 32, 40, 41
N_TEAM_WORDS = 48
PARKED, _BYTES = 1, 8
_WAIT, _WAKE, _ALL = 128, 129, 2**30  # FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE
# The number of the system call futex, and whether its 32 bits are the first of a word.
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0)
HAS_FUTEX = sys.platform == "linux" and _FUTEX != 0 and sys.byteorder == "little"
_syscall: Any = types.ExternalFunction(
    "syscall", types.intp(types.intp, types.intp, types.intp, types.intp, types.intp)
)


@compiled_with(**INLINE)
def meet(context: int) -> None:  # pragma: no cover - compiled
    """Go on when all threads of the team are here; each must come as often as the others."""
    n_threads = word(context, N_THREADS)
    if n_threads == 1:
        return
    team = word(context, TEAM)
    meetings = atomics.load(team + _BYTES * MEETINGS)
    if atomics.add(team + _BYTES * ARRIVED, np.int64(1)) == n_threads - 1:
        atomics.store(team + _BYTES * ARRIVED, np.int64(0))
        tell(team + _BYTES * MEETINGS, meetings + 1)
    else:
        wait_while(team + _BYTES * MEETINGS, meetings)


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
