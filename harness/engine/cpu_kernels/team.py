"""A few threads that run the same calls at the same time, each on its share of the rows.

The caller is one of them. The others are started once and stay in compiled code, without Python's
lock, until their team is gone. There are no threads at all in a team of one.

A meeting of threads that come at about the same time costs well under a microsecond, and being
woken by the kernel tens of them; so who waits looks again SPINS times (about 40 us, 2.6 GHz Zen 4)
and only then parks, by Linux's futex (Drepper, "Futexes are tricky", 2011). Nobody spins longer:
between mini-batches, or where another program holds a processor, threads are parked.
"""

from __future__ import annotations

import os
import platform
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.compiler.compiled import address_of, compiled
from harness.compiler.pointers import (
    add_atomic,
    call,
    call_system,
    load_atomic,
    pause,
    put_word,
    store_atomic,
    word,
)
from harness.compiler.registry import helper
from harness.engine.cpu_kernels import memory_kernels
from harness.engine.cpu_kernels.blas import Scratch
from harness.engine.cpu_kernels.context import (
    FACTORS,
    LETTERS,
    MOST_OPERANDS,
    N_REGISTERS,
    N_TALLY,
    N_THREADS,
    N_WORDS,
    ONE,
    OPERANDS,
    PLACES,
    REGISTERS,
    SIZES,
    TALLY,
    TEAM,
    THREAD,
)
from harness.errors import UnsupportedTrial

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


Table = NDArray[np.int64]
_CALL_WORDS = 4
_CALL = struct.Struct(f"{_CALL_WORDS}q")
_BATCH_BYTES = 8  # type id and position, int32
NAME = "engine"  # of the threads


class Callee(Protocol):
    """What threads can call: function (context, argument, batches, n), by its address.

    argument: an address that is handed on, of a program or of a table.
    """

    @property
    def function(self) -> int: ...
    @property
    def argument(self) -> int: ...


class Call(NamedTuple):
    """batches (n, 2): int32, contiguous."""

    callee: Callee
    batches: NDArray[np.int32]


class Calls(NamedTuple):
    """Many calls of a few callees.

    batches: of each callee those of all its calls, one behind the other, (k, 2), int32, contiguous.
    order (n, 3): of each call which callee it is, the first of its batches, and how many there are.
    """

    callees: Sequence[Callee]
    batches: Sequence[NDArray[np.int32]]
    order: NDArray[np.integer[Any]]


class Team:
    """n threads, and what each of them multiplies with and counts.

    scratch: makes what a thread multiplies with. enter: what a new thread does first.
    """

    def __init__(self, n: int, scratch: Callable[[], Scratch], enter: Callable[[], object]) -> None:
        self.n = n if HAS_FUTEX else 1
        self._words: Table = np.zeros(N_TEAM_WORDS, dtype=np.int64)
        self._scratch = [scratch() for _ in range(self.n)]
        self.tallies = [np.zeros(64 // _BYTES * 2, np.int64)[:N_TALLY] for _ in range(self.n)]
        self._rooms = [
            memory_kernels.aligned_empty((N_REGISTERS + 2 * MOST_OPERANDS,), np.int64)
            for _ in self._scratch
        ]
        self._contexts = [self._context(thread) for thread in range(self.n)]
        self._table: Table = np.zeros((8, _CALL_WORDS), dtype=np.int64)
        self._process = os.getpid()
        self._own_context = address_of(self._contexts[0])
        if self.n > 1:
            self._start(enter)

    def run(self, calls: Sequence[Call]) -> None:
        """Let every thread make all calls; they return when all are done.

        Ctrl-C is raised when all are done.
        """
        if len(calls) > len(self._table):
            self._table = np.zeros((len(calls), _CALL_WORDS), dtype=np.int64)
        for k, (callee, batches) in enumerate(calls):
            _CALL.pack_into(
                self._table.data, 8 * _CALL_WORDS * k, callee.function, callee.argument,
                address_of(batches), len(batches),
            )  # fmt: skip
        self.run_table(self._table, len(calls))

    def run_all(self, calls: Calls) -> None:
        """As `run`, without Python for each of them."""
        which, first, n = calls.order.T
        functions = np.array([callee.function for callee in calls.callees], dtype=np.int64)
        places = np.array([callee.argument for callee in calls.callees], dtype=np.int64)
        batches = np.array([address_of(batches) for batches in calls.batches], dtype=np.int64)
        table = np.empty((len(which), _CALL_WORDS), dtype=np.int64)
        table[:, 0], table[:, 1] = functions[which], places[which]
        table[:, 2], table[:, 3] = batches[which] + first * _BATCH_BYTES, n
        self.run_table(table, len(table))

    def run_table(self, table: Table, n: int) -> None:
        """Make n calls that are written down, as `run` does."""
        self._check_process()
        run_at(self._own_context, address_of(table), n)

    def take_places(self, address: int) -> None:
        """Tell all threads where the table of arrays is."""
        for context in self._contexts:
            context[PLACES] = address

    def callable_at(self) -> tuple[int, int]:
        """Return the address of `run_at`, for compiled code that calls it, and its context."""
        self._check_process()
        return run_at.address, self._own_context

    def _check_process(self) -> None:
        if self.n > 1 and os.getpid() != self._process:
            raise RuntimeError("a fork has none of its parent's threads; make an engine of its own")

    def parked(self) -> int:
        """How many threads wait in the kernel for something to do."""
        return int(self._words[JOB + PARKED])

    def words(self, n_asked: int) -> str:
        """How many threads there are, and why not as many as were asked for."""
        if self.n == n_asked:
            return str(self.n)
        return f"{self.n} of {n_asked}: threads park by futex, which Linux has on x86-64 and Arm64"

    def _context(self, thread: int) -> Table:
        sizes, letters, factors = self._scratch[thread]
        context = np.zeros(N_WORDS, dtype=np.int64)
        context[THREAD], context[N_THREADS] = thread, self.n
        context[TEAM], context[TALLY] = address_of(self._words), address_of(self.tallies[thread])
        context[SIZES], context[LETTERS] = address_of(sizes), address_of(letters)
        context[FACTORS] = address_of(factors)
        room = self._rooms[thread]
        room[:N_REGISTERS] = 0
        room[ONE] = 1
        context[REGISTERS], context[OPERANDS] = address_of(room), address_of(room[N_REGISTERS:])
        return context

    def _start(self, enter: Callable[[], object]) -> None:
        """Start the others; returns when all are in compiled code, where they need no Python.

        The caller holds Python's lock while it waits for them in `meet`.
        """
        assert serve.address  # compiled before any thread asks for it
        self.close = weakref.finalize(self, _stop, self._words)
        kept = (self._words, self._scratch, self.tallies, self._rooms, self._contexts)
        failed: list[Exception] = []
        n_running = 1
        try:
            for context in self._contexts[1:]:
                arguments = (address_of(context), enter, failed, kept)
                threading.Thread(target=_enter, args=arguments, daemon=True, name=NAME).start()
                n_running += 1
        except RuntimeError as error:
            self.close()
            raise UnsupportedTrial(
                f"only {n_running} of threads={self.n} could be started ({error}); take fewer, or"
                " allow more (ulimit -u)"
            ) from error
        while self._words[READY] < self.n - 1 and not failed:
            time.sleep(1e-4)
        if failed:
            self.close()
            raise failed[0]


def _enter(context: int, enter: Callable[[], object], failed: list[Exception], kept: Any) -> None:
    """kept: memory that the thread uses, for as long as it does."""
    try:
        enter()
    except Exception as error:
        failed.append(error)
    else:
        serve(context)


def _stop(words: Table) -> None:
    """Let the threads of a team end."""
    end_team(address_of(words))


@compiled
def run_at(context: int, calls: int, n: int) -> None:
    """Make calls, the others at the same time."""
    team = word(context, TEAM)
    if word(context, N_THREADS) > 1:
        store_atomic(team + _BYTES * CALLS, calls)
        store_atomic(team + _BYTES * N_CALLS, n)
        tell(team + _BYTES * JOB, load_atomic(team + _BYTES * JOB) + 1)
    _make(context, calls, n)


@helper
def _make(context: int, calls: int, n: int) -> None:
    """Make calls."""
    for k in range(n):
        at = calls + _BYTES * _CALL_WORDS * k
        call(word(at, 0), (context, word(at, 1), word(at, 2), word(at, 3)))
    meet_at_end(context)


@compiled(without_lock=True)
def serve(context: int) -> None:
    """What the others do: wait for a job, do their share, until the team is gone."""
    team, seen = word(context, TEAM), 0
    add_atomic(team + _BYTES * READY, 1)
    while True:
        wait_while(team + _BYTES * JOB, seen)
        seen += 1
        if load_atomic(team + _BYTES * STOP) != 0:
            return
        calls = load_atomic(team + _BYTES * CALLS)
        _make(context, calls, load_atomic(team + _BYTES * N_CALLS))


@compiled
def end_team(team: int) -> None:
    """Let the threads of a team end."""
    put_word(team, STOP, 1)
    tell(team + _BYTES * JOB, load_atomic(team + _BYTES * JOB) + 1)
