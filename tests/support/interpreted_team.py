"""A team whose calls are plain Python: generated code as text, with threads of Python's own."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.engine.cpu_kernels.addresses import Table
from harness.engine.cpu_kernels.blas import Scratch
from harness.engine.cpu_kernels.loss_sums import LossSums
from harness.engine.cpu_kernels.team import Call, Callee, Calls, Team


@dataclass(frozen=True)
class InterpretedContext:
    """What a thread is told, as objects instead of addresses."""

    thread: int
    n_threads: int
    scratch: Scratch
    tally: Any
    barrier: threading.Barrier


class InterpretedTeam(Team):
    """Runs functions that are called with arrays where compiled ones take addresses."""

    def __init__(self, n: int, scratch: Callable[[], Scratch], enter: Callable[[], object]) -> None:
        self.n = n
        self.tallies = [np.zeros(3, np.int64) for _ in range(n)]
        barrier = threading.Barrier(n, timeout=60)
        self.contexts = [
            InterpretedContext(k, n, scratch(), self.tallies[k], barrier) for k in range(n)
        ]

    def run(self, calls: Sequence[Call]) -> None:
        failed: list[BaseException] = []

        def make(context: InterpretedContext) -> None:
            try:
                for callee, batches in calls:
                    if isinstance(callee, LossSums):
                        _add_up(context, callee, batches)
                    else:
                        callee.function(context, callee.arrays, batches, len(batches))
            except BaseException as error:
                failed.append(error)
                context.barrier.abort()

        others = [threading.Thread(target=make, args=(c,)) for c in self.contexts[1:]]
        for other in others:
            other.start()
        make(self.contexts[0])
        for other in others:
            other.join()
        if failed:
            raise next(e for e in failed if not isinstance(e, threading.BrokenBarrierError))

    def run_table(self, table: Table, n: int, callees: Sequence[Callee]) -> None:
        """Callees are known by where their arguments are, batches are read from their address."""
        by_places = {callee.places_address: callee for callee in callees}
        found = []
        for _, places, batches, n_batches in table[:n].tolist():
            pairs = (ctypes.c_int32 * (2 * n_batches)).from_address(batches)
            found.append(Call(by_places[places], np.array(pairs, dtype=np.int32).reshape(-1, 2)))
        self.run(found)

    def callable_at(self) -> tuple[int, int]:
        return 0, 0

    def run_all(self, calls: Calls) -> None:
        found = []
        for which, first, n in calls.order.tolist():
            found.append(Call(calls.callees[which], calls.batches[which][first : first + n]))
        self.run(found)


def _add_up(context: InterpretedContext, sums: LossSums, rows: Any) -> None:
    """As harness.engine.cpu_kernels.loss_sums does."""
    if context.thread == 0:
        _, *columns = sums.arrays
        for column, (begin, end) in zip(columns, rows.tolist(), strict=True):
            sums.total += column[begin:end].sum()
    context.barrier.wait()


def _array(places: Sequence[Any], k: int, *_: int) -> Any:
    return places[k]


# What generated code calls to find its arrays and its thread.
CONTEXT_NAMES: dict[str, Any] = {
    "thread_of": lambda context: (context.thread, context.n_threads),
    "sizes_of": lambda context: context.scratch[0],
    "letters_of": lambda context: context.scratch[1],
    "factors_of": lambda context: context.scratch[2],
    "tally_of": lambda context: context.tally,
    "meet": lambda context: context.barrier.wait() >= 0,
    "int32_pairs": lambda batches, n: batches,
    "float_matrix": _array,
    "float_vector": _array,
    "int32_vector": _array,
    "int64_vector": _array,
    "part": lambda array, first, n: array[first : first + n],
    "array_of": lambda array: array,
    "reshaped": lambda array, n, width: array.reshape(n, width),
}
