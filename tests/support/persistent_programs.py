"""Text of a persistent kernel, run by programs that alternate in the worst order.

The generated text itself walks a program and synchronizes after a phase. NumPy computes each tile
of a kind (walked_backend.py) immediately, as on a GPU. Programs are threads, one of which runs at a
time; at every tile and at every read of the counter another one may be chosen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from dynbatch.harness.engine.backends.cuda.kinds import MANY, Tile, TileKind, Tiling, make_cut
from dynbatch.harness.engine.backends.cuda.module import HEADER, KernelModule
from dynbatch.harness.engine.backends.cuda.program import DeviceInstruction, Rows
from dynbatch.harness.engine.backends.cuda.words import WordArray, Words
from tests.support.walked_backend import Launch, Walk, WalkedBackend

Choose = Callable[[list[int]], int]  # selects one of the programs that can continue
SMALL = Tiling(
    products=((2, Tile(2, 4, 8)), (MANY, Tile(4, 4, 16))),
    plain=Tile(2, 4, 1),
    sums=Tile(4, 4, 16),
    wide_rows=Tile(2, 2, 1),
)


def ahead(which: int) -> Choose:
    """Select always the first or always the last program that can continue."""
    return lambda ready: ready[which]


def drawn(seed: int) -> Choose:
    """Select a program at random."""
    rng = np.random.default_rng(seed)
    return lambda ready: ready[int(rng.integers(len(ready)))]


ORDERS = {"first ahead": ahead(0), "last ahead": ahead(-1), "drawn": drawn(3)}


class Turns:
    """Programs as threads, one of which runs at a time."""

    def __init__(self, n_programs: int, choose: Choose) -> None:
        self._choose = choose
        self._turn = [threading.Semaphore(0) for _ in range(n_programs)]
        self._back = threading.Semaphore(0)
        self._going = set(range(n_programs))
        self._waiting: set[int] = set()  # programs that wait for the counter to change
        self._local = threading.local()
        self.errors: list[BaseException] = []

    @property
    def program(self) -> int:
        found: int = self._local.program
        return found

    def run(self, work: Callable[[], None]) -> None:
        threads = [
            threading.Thread(target=self._thread, args=(k, work), daemon=True)
            for k in range(len(self._turn))
        ]
        for thread in threads:
            thread.start()
        while self._going and not self.errors:
            ready = sorted(self._going - self._waiting)
            assert ready, "all programs wait for one another"
            self._turn[self._choose(ready)].release()
            self._back.acquire()
        if self.errors:
            raise self.errors[0]

    def _thread(self, program: int, work: Callable[[], None]) -> None:
        self._local.program = program
        self._turn[program].acquire()
        try:
            work()
        except BaseException as error:
            self.errors.append(error)
        self._going.discard(program)
        self._back.release()

    def pause(self, *, waits: bool = False) -> None:
        """Let others continue; with `waits`, until the counter changes."""
        if waits:
            self._waiting.add(self.program)
        self._back.release()
        self._turn[self.program].acquire()

    def wake(self) -> None:
        self._waiting.clear()


@dataclass(frozen=True)
class Pointer:
    """Pointer into an array of words."""

    words: Words
    at: int = 0

    def __add__(self, by: int) -> Pointer:
        return Pointer(self.words, self.at + by)


class PersistentBackend(WalkedBackend):
    """Backend that runs all phases in one call of the kernel's generated text.

    Attributes:
        change: modifies the text, for tests with wrong kernels.
    """

    tiling = SMALL
    n_programs = 3
    choose: Choose = staticmethod(ahead(0))
    change: Callable[[str], str] = staticmethod(lambda text: text)

    def _walk(
        self, launch: Launch, words: Words, indices: Mapping[WordArray, tuple[int, int]]
    ) -> None:
        found = {array: words[words[place] :][:n] for array, (place, n) in indices.items()}
        turns, counter = Turns(self.n_programs, type(self).choose), [0]

        seen: dict[int, int] = {}  # last value read by a program, which waits if it is unchanged

        def atomic_add(barrier: list[int], by: int, **_: str) -> int:
            program = turns.program
            turns.pause(waits=not by and seen.get(program) == barrier[0])
            before = seen[program] = barrier[0]
            barrier[0] += by
            if by:
                turns.wake()
            return before

        tl = SimpleNamespace(
            load=lambda pointer: int(pointer.words[pointer.at]),
            program_id=lambda _: turns.program,
            num_programs=lambda _: self.n_programs,
            debug_barrier=lambda: None,
            atomic_add=atomic_add,
            constexpr=None,
        )
        run = _function(launch.module, type(self).change, tl, partial(_tile, launch, found, turns))
        floats = [None] * len(launch.module.floats)
        turns.run(lambda: run(Pointer(words), launch.slot, counter, *floats))


def _function(
    module: KernelModule, change: Callable[[str], str], tl: Any, tile: Callable[..., None]
) -> Callable[..., None]:
    """Return the generated `run`, with tiles that NumPy computes."""

    def jit(function: Any = None, **_: Any) -> Any:
        return function if function is not None else lambda one: one

    names: dict[str, Any] = {"tl": tl, "triton": SimpleNamespace(jit=jit)}
    exec(change(module.text.removeprefix(HEADER)), names)
    names |= {f"kind_{k}": partial(tile, k) for k in range(len(module.entries))}
    run: Callable[..., None] = names["run"]
    return run


def _tile(
    launch: Launch, words: Mapping[WordArray, Words], turns: Turns, number: int,
    _: Pointer, start: int, n: int, state_row: int, tile: int, *__: Any,
) -> None:  # fmt: skip
    """Compute a tile; the first tile of a row computes all tiles of the row."""
    turns.pause()
    entry = launch.module.entries[number]
    cut, rows = make_cut(entry.kind, entry.tile), Rows(start, n, state_row)
    if cut.rows == 0 or (isinstance(entry.kind, TileKind) and entry.kind.per_row > 1):
        is_first = tile == 0
    else:
        first = tile // cut.across * cut.rows
        rows = Rows(start + first, min(cut.rows, n - first), state_row + first)
        is_first = tile % cut.across == 0
    if is_first:
        Walk(launch, words).phase([DeviceInstruction(entry.kind, rows)])
