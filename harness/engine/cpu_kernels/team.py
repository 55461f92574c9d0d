"""Team of a few threads that run the same calls in parallel, each on its part of the rows.

The caller is one of the threads. The others are started once and stay in compiled code, without
Python's lock, until the team is deleted. A team of one starts no threads.

A barrier at which threads arrive almost simultaneously takes well under a microsecond, but being
woken by the kernel takes tens of microseconds. A waiting thread therefore polls SPINS times (about
40 us on a 2.6 GHz Zen 4) and then parks on a futex of Linux. Threads are thus parked between
mini-batches, or while another program occupies a processor.

Source: Drepper, "Futexes are tricky", 2011.
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

from dynbatch.harness.compiler.compiled import compiled, get_address
from dynbatch.harness.compiler.pointers import (
    add_atomic,
    call,
    call_system,
    load_atomic,
    pause,
    put_word,
    read_word,
    store_atomic,
)
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.engine.cpu_kernels import memory_kernels
from dynbatch.harness.engine.cpu_kernels.blas import Multiplying
from dynbatch.harness.engine.cpu_kernels.context import (
    FACTORS,
    LETTERS,
    MAX_OPERANDS,
    N_REGISTERS,
    N_TALLY,
    N_THREADS,
    N_WORDS,
    OPERANDS,
    PLACES,
    REGISTERS,
    SIZES,
    TALLY,
    TEAM,
    THREAD,
)
from dynbatch.harness.errors import UnsupportedTrial

SPINS = 2000
# int64 words of a team, each on its own cache line; the word after one that is waited for is the
# number of threads parked there.
JOB, READY, STOP, CALLS, N_CALLS = 0, 8, 16, 24, 25
# The barrier: the number of threads that arrived and, on the next cache line, the number of times
# that it was passed.
ARRIVED, PASSED = 32, 40
N_TEAM_WORDS = 48
PARKED, _BYTES = 1, 8
_WAIT, _WAKE, _ALL = 128, 129, 2**30  # FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE
# The number of the system call futex; its 32 bits must be the first of a word.
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0)
HAS_FUTEX = sys.platform == "linux" and _FUTEX != 0 and sys.byteorder == "little"


@helper
def wait_at_barrier(context: int) -> None:
    """Wait until all threads of the team are at the barrier; a team of one does not wait.

    All threads must call this function equally often.
    """
    n_threads = read_word(context, N_THREADS)
    if n_threads > 1:
        team = read_word(context, TEAM)
        arrived, passed = team + _BYTES * ARRIVED, team + _BYTES * PASSED
        times = load_atomic(passed)
        if add_atomic(arrived, 1) == n_threads - 1:
            store_atomic(arrived, 0)
            store_and_wake(passed, times + 1)
        else:
            wait_while(passed, times)


@helper
def store_and_wake(address: int, value: int) -> None:
    """Write a word, and wake all threads that are parked on it."""
    store_atomic(address, value)
    if load_atomic(address + _BYTES * PARKED) > 0:
        call_system(_FUTEX, address, _WAKE, _ALL, 0)


@helper
def wait_while(address: int, value: int) -> None:
    """Wait until a word has another value.

    A thread counts itself as parked before the kernel compares the word, and `store_and_wake`
    reads this count after it has written the word. Either the thread sees the new value, or
    `store_and_wake` sees the thread.
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
NAME = "engine"  # of all threads


class Callee(Protocol):
    """A function that threads can call by its address: function(context, argument, batches, n).

    `argument` is an address that is passed on, of a program or of a table.
    """

    @property
    def function(self) -> int: ...
    @property
    def argument(self) -> int: ...


class Call(NamedTuple):
    """A call of one callee.

    Attributes:
        batches: (n, 2), int32, contiguous.
    """

    callee: Callee
    batches: NDArray[np.int32]


class Calls(NamedTuple):
    """Many calls of a few callees.

    Attributes:
        batches: For each callee, the concatenated batches of all its calls (k, 2), int32,
            contiguous.
        order: (n, 3), for each call the number of the callee, its first batch, and its number of
            batches.
    """

    callees: Sequence[Callee]
    batches: Sequence[NDArray[np.int32]]
    order: NDArray[np.integer[Any]]


class Team:
    """A team of n threads, with their arrays for matmuls and their counters."""

    def __init__(self, n: int, multiplying: Multiplying) -> None:
        self.n = n if HAS_FUTEX else 1
        self._words: Table = np.zeros(N_TEAM_WORDS, dtype=np.int64)
        self._scratch = [multiplying.copy_for_thread() for _ in range(self.n)]
        self.tallies = [np.zeros(64 // _BYTES * 2, np.int64)[:N_TALLY] for _ in range(self.n)]
        self._rooms = [
            memory_kernels.allocate_aligned((N_REGISTERS + 2 * MAX_OPERANDS,), np.int64)
            for _ in self._scratch
        ]
        self._contexts = [self._make_context(thread) for thread in range(self.n)]
        self._table: Table = np.zeros((8, _CALL_WORDS), dtype=np.int64)
        self._process = os.getpid()
        self._own_context = get_address(self._contexts[0])
        if self.n > 1:
            self._start(multiplying.enter)

    def run(self, calls: Sequence[Call]) -> None:
        """Make all calls on every thread, and return when all are done.

        KeyboardInterrupt is raised only then.
        """
        if len(calls) > len(self._table):
            self._table = np.zeros((len(calls), _CALL_WORDS), dtype=np.int64)
        for k, (callee, batches) in enumerate(calls):
            _CALL.pack_into(
                self._table.data, 8 * _CALL_WORDS * k, callee.function, callee.argument,
                get_address(batches), len(batches),
            )  # fmt: skip
        self.run_table(self._table, len(calls))

    def run_all(self, calls: Calls) -> None:
        """Make many calls as `run` does, without Python code for each."""
        which, first, n = calls.order.T
        functions = np.array([callee.function for callee in calls.callees], dtype=np.int64)
        places = np.array([callee.argument for callee in calls.callees], dtype=np.int64)
        batches = np.array([get_address(batches) for batches in calls.batches], dtype=np.int64)
        table = np.empty((len(which), _CALL_WORDS), dtype=np.int64)
        table[:, 0], table[:, 1] = functions[which], places[which]
        table[:, 2], table[:, 3] = batches[which] + first * _BATCH_BYTES, n
        self.run_table(table, len(table))

    def run_table(self, table: Table, n: int) -> None:
        """Make the n calls of a table as `run` does."""
        self._check_process()
        run_at(self._own_context, get_address(table), n)

    def take_places(self, address: int) -> None:
        """Set the address of the table of arrays for all threads."""
        for context in self._contexts:
            context[PLACES] = address

    def find_entry_point(self) -> tuple[int, int]:
        """Return the address of `run_at`, for compiled code that calls it, and its context."""
        self._check_process()
        return run_at.address, self._own_context

    def _check_process(self) -> None:
        if self.n > 1 and os.getpid() != self._process:
            raise RuntimeError(
                "a forked process cannot use its parent's threads; make a new engine in it"
            )

    def describe_threads(self, n_asked: int) -> str:
        """Return the number of threads, and the reason if it differs from the requested number."""
        if self.n == n_asked:
            return str(self.n)
        return f"{self.n} of {n_asked}: threads park by futex, which Linux has on x86-64 and Arm64"

    def _make_context(self, thread: int) -> Table:
        sizes, letters, factors = self._scratch[thread]
        context = np.zeros(N_WORDS, dtype=np.int64)
        context[THREAD], context[N_THREADS] = thread, self.n
        context[TEAM], context[TALLY] = (
            get_address(self._words),
            get_address(self.tallies[thread]),
        )
        context[SIZES], context[LETTERS] = get_address(sizes), get_address(letters)
        context[FACTORS] = get_address(factors)
        room = self._rooms[thread]
        room[:N_REGISTERS] = 0
        context[REGISTERS], context[OPERANDS] = get_address(room), get_address(room[N_REGISTERS:])
        return context

    def _start(self, enter: Callable[[], object]) -> None:
        """Start the other threads, and return when all are in compiled code, which needs no Python.

        This must happen first, because the caller holds Python's lock while it waits for them in
        `wait_at_barrier`.
        """
        assert serve.address  # compiles the function before any thread calls it
        self.close = weakref.finalize(self, _stop, self._words)
        kept = (self._words, self._scratch, self.tallies, self._rooms, self._contexts)
        failed: list[Exception] = []
        n_running = 1
        try:
            for context in self._contexts[1:]:
                arguments = (get_address(context), enter, failed, kept)
                threading.Thread(target=_enter, args=arguments, daemon=True, name=NAME).start()
                n_running += 1
        except RuntimeError as error:
            self.close()
            raise UnsupportedTrial(
                f"only {n_running} of threads={self.n} started ({error}); set fewer, or raise the"
                " limit (ulimit -u)"
            ) from error
        while self._words[READY] < self.n - 1 and not failed:
            time.sleep(1e-4)
        if failed:
            self.close()
            raise failed[0]


def _enter(context: int, enter: Callable[[], object], failed: list[Exception], kept: Any) -> None:
    """Run a new thread.

    Args:
        kept: Memory that the thread uses; the reference keeps it alive.
    """
    try:
        enter()
    except Exception as error:
        failed.append(error)
    else:
        serve(context)


def _stop(table: Table) -> None:
    """End the threads of a team."""
    end_team(get_address(table))


@compiled
def run_at(context: int, calls: int, n: int) -> None:
    """Make calls on all threads of the team."""
    team = read_word(context, TEAM)
    if read_word(context, N_THREADS) > 1:
        store_atomic(team + _BYTES * CALLS, calls)
        store_atomic(team + _BYTES * N_CALLS, n)
        store_and_wake(team + _BYTES * JOB, load_atomic(team + _BYTES * JOB) + 1)
    _run_calls(context, calls, n)


@helper
def _run_calls(context: int, calls: int, n: int) -> None:
    """Make calls on this thread, and wait until all threads have completed them."""
    for k in range(n):
        at = calls + _BYTES * _CALL_WORDS * k
        call(read_word(at, 0), (context, read_word(at, 1), read_word(at, 2), read_word(at, 3)))
    wait_at_barrier(context)


@compiled(without_lock=True)
def serve(context: int) -> None:
    """Run a thread of the team: wait for jobs and take part in them until the team ends."""
    team, seen = read_word(context, TEAM), 0
    add_atomic(team + _BYTES * READY, 1)
    while True:
        wait_while(team + _BYTES * JOB, seen)
        seen += 1
        if load_atomic(team + _BYTES * STOP) != 0:
            return
        calls = load_atomic(team + _BYTES * CALLS)
        _run_calls(context, calls, load_atomic(team + _BYTES * N_CALLS))


@compiled
def end_team(team: int) -> None:
    """End the threads of a team."""
    put_word(team, STOP, 1)
    store_and_wake(team + _BYTES * JOB, load_atomic(team + _BYTES * JOB) + 1)
