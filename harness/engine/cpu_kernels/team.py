"""A few threads that run the same calls at the same time, each on its share of the rows.

The caller is one of them. The others are started once and stay in compiled code, without Python's
lock, until their team is gone; meeting.py says how they wait. There are no threads at all in a team
of one.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.engine.cpu_kernels import atomics
from harness.engine.cpu_kernels.addresses import (
    ERROR,
    FACTORS,
    INLINE,
    LETTERS,
    N_TALLY,
    N_THREADS,
    N_WORDS,
    SIZES,
    TALLY,
    TEAM,
    THREAD,
    Table,
    address_of,
    word,
)
from harness.engine.cpu_kernels.blas import Scratch
from harness.engine.cpu_kernels.meeting import (
    CALLS,
    FAILED,
    FIRST,
    HAS_FUTEX,
    JOB,
    N_CALLS,
    N_TEAM_WORDS,
    PARKED,
    READY,
    STOP,
    begin_anew,
    fail,
    meet_at_end,
    tell,
    wait_while,
)
from harness.errors import UnsupportedTrial
from harness.machine.compiled import compiled_with
from harness.machine.native import DONE, address_for_numbers, call_native, raise_again

_BYTES = 8
_CALL_WORDS = 4
_BATCH_BYTES = 8  # type id and position, int32
NAME = "engine"  # of the threads


class Callee(Protocol):
    """What compiled code can call: function (context, places, batches, n), and its arguments.

    places_address: of the table that says where the arrays are.
    """

    @property
    def function(self) -> Any: ...
    @property
    def arrays(self) -> Sequence[NDArray[Any]]: ...
    @property
    def places_address(self) -> int: ...


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
        self._contexts = [self._context(thread) for thread in range(self.n)]
        self._table: Table = np.zeros((8, _CALL_WORDS), dtype=np.int64)
        self._process = os.getpid()
        self._own_context = address_of(self._contexts[0])
        if self.n > 1:
            self._start(enter)

    def run(self, calls: Sequence[Call]) -> None:
        """Let every thread make all calls; they return when all are done.

        An error of any thread ends the calls of all, and is raised here. So is Ctrl-C, when all are
        done.
        """
        if len(calls) > len(self._table):
            self._table = np.zeros((len(calls), _CALL_WORDS), dtype=np.int64)
        for k, (callee, batches) in enumerate(calls):
            _put(self._table, k, callee.function.address, callee.places_address, batches)
        self._make(self._table, len(calls))

    def run_all(self, calls: Calls) -> None:
        """As `run`, without Python for each of them."""
        which, first, n = calls.order.T
        functions = np.array([callee.function.address for callee in calls.callees], dtype=np.int64)
        places = np.array([callee.places_address for callee in calls.callees], dtype=np.int64)
        batches = np.array([address_of(batches) for batches in calls.batches], dtype=np.int64)
        table = np.empty((len(which), _CALL_WORDS), dtype=np.int64)
        table[:, 0], table[:, 1] = functions[which], places[which]
        table[:, 2], table[:, 3] = batches[which] + first * _BATCH_BYTES, n
        self._make(table, len(table))

    def run_table(self, table: Table, n: int, callees: Sequence[Callee]) -> None:
        """As `run`, calls that compiled code has written down: see `_put`.

        callees: all that may be called.
        """
        self._make(table, n)

    def callable_at(self) -> tuple[int, int]:
        """The address of `run_at`, for compiled code that makes calls itself, and its context.

        Zeros where calls are interpreted.
        """
        self._check_process()
        return address_for_numbers(run_at, 3), self._own_context

    def _make(self, table: Table, n: int) -> None:
        self._check_process()
        _run(self._own_context, table, n)

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
        return context

    def _start(self, enter: Callable[[], object]) -> None:
        """Start the others; returns when all are in compiled code, where they need no Python.

        The caller holds Python's lock while it waits for them in `meet`.
        """
        self._words[STOP] = self._words[JOB] = 1
        _serve(self._own_context)  # compiled here, and over at once
        self._words[STOP] = self._words[JOB] = self._words[READY] = 0
        self.close = weakref.finalize(self, _stop, self._words)
        kept = (self._words, self._scratch, self.tallies, self._contexts)
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
        _serve(context)


def _stop(words: Table) -> None:
    """Let the threads of a team end."""
    words[STOP] = 1
    _tell(address_of(words) + _BYTES * JOB, int(words[JOB]) + 1)


@compiled_with(**INLINE)
def _tell(address: int, value: int) -> None:  # pragma: no cover - compiled
    tell(address, value)


@compiled_with(**INLINE)
def _put(table: Any, k: int, function: int, places: int, batches: Any) -> None:  # pragma: no cover
    table[k, 0], table[k, 1] = function, places
    table[k, 2], table[k, 3] = batches.ctypes.data, len(batches)


@compiled_with(**INLINE)
def _run(context: int, table: Any, n: int) -> None:  # pragma: no cover - compiled
    run_at(context, table.ctypes.data, n)


@compiled_with(**INLINE)
def run_at(context: int, calls: int, n: int) -> int:  # pragma: no cover - compiled
    """Make calls, the others at the same time; raises the error of whichever thread had one."""
    team = word(context, TEAM)
    if word(context, N_THREADS) > 1:
        atomics.store(team + _BYTES * CALLS, calls)
        atomics.store(team + _BYTES * N_CALLS, n)
        tell(team + _BYTES * JOB, atomics.load(team + _BYTES * JOB) + 1)
    _make(context, calls, n)
    if atomics.load(team + _BYTES * FAILED) != 0:
        begin_anew(context)
        failed = atomics.load(team + _BYTES * FIRST)
        raise_again(word(failed, ERROR), word(failed, ERROR + 1))
    return DONE


@compiled_with(**INLINE)
def _make(context: int, calls: int, n: int) -> None:  # pragma: no cover - compiled
    """Make calls until one of them fails, here or elsewhere; never raises."""
    team = word(context, TEAM)
    for k in range(n):
        at = calls + _BYTES * _CALL_WORDS * k
        arguments = (context, word(at, 1), word(at, 2), word(at, 3))
        if call_native(word(at, 0), context + _BYTES * ERROR, arguments) != DONE:
            fail(context)
        if atomics.load(team + _BYTES * FAILED) != 0:
            break
    meet_at_end(context)


@compiled_with(nogil=True, **INLINE)
def _serve(context: int) -> None:  # pragma: no cover - compiled
    """What the others do: wait for a job, do their share, until the team is gone."""
    team, seen = word(context, TEAM), 0
    atomics.add(team + _BYTES * READY, np.int64(1))
    while True:
        wait_while(team + _BYTES * JOB, seen)
        seen += 1
        if atomics.load(team + _BYTES * STOP) != 0:
            return
        calls = atomics.load(team + _BYTES * CALLS)
        _make(context, calls, atomics.load(team + _BYTES * N_CALLS))
