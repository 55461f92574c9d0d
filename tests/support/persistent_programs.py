"""The text of a persistent kernel, run by programs that take turns in the worst order.

What walks a program and what meets behind a phase is the generated text itself; a tile of a kind is
computed by NumPy (walked_backend.py), at once, as on a GPU. Programs are threads of which one goes
on at a time: at every tile and at every look at the counter another may be chosen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from harness.engine.backends.cuda.kinds import MANY, Tile, TileKind, Tiling, cut_of
from harness.engine.backends.cuda.module import HEADER, Module
from harness.engine.backends.cuda.program import Instruction, Rows
from harness.engine.backends.cuda.words import WordArray, Words
from tests.support.walked_backend import Launch, Walk, WalkedBackend

Choose = Callable[[list[int]], int]  # of the programs that can go on
SMALL = Tiling(
    products=((2, Tile(2, 4, 8)), (MANY, Tile(4, 4, 16))),
    plain=Tile(2, 4, 1),
    sums=Tile(4, 4, 16),
    wide_rows=Tile(2, 2, 1),
)


def ahead(which: int) -> Choose:
    """The first, or the last, as far as it can go."""
    return lambda ready: ready[which]


def drawn(seed: int) -> Choose:
    """Any, by chance."""
    rng = np.random.default_rng(seed)
    return lambda ready: ready[int(rng.integers(len(ready)))]


ORDERS = {"first ahead": ahead(0), "last ahead": ahead(-1), "drawn": drawn(3)}


class Turns:
    """Programs as threads, one of which goes on at a time."""

    def __init__(self, n_programs: int, choose: Choose) -> None:
        self._choose = choose
        self._turn = [threading.Semaphore(0) for _ in range(n_programs)]
        self._back = threading.Semaphore(0)
        self._going = set(range(n_programs))
        self._waiting: set[int] = set()  # for the counter to change
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
        """Let others go on; waits: until the counter changes."""
        if waits:
            self._waiting.add(self.program)
        self._back.release()
        self._turn[self.program].acquire()

    def wake(self) -> None:
        self._waiting.clear()


@dataclass(frozen=True)
class Pointer:
    """Into words."""

    words: Words
    at: int = 0

    def __add__(self, by: int) -> Pointer:
        return Pointer(self.words, self.at + by)


class PersistentBackend(WalkedBackend):
    """All phases in one call of the kernel's own text.

    change: of that text, for tests in which it is wrong.
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

        seen: dict[int, int] = {}  # at a program's last look; one that looks again has to wait

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
    module: Module, change: Callable[[str], str], tl: Any, tile: Callable[..., None]
) -> Callable[..., None]:
    """The generated `run` and `meet`, over tiles that NumPy computes."""

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
    """One tile, computed by its first in a row of tiles for the others beside it, too."""
    turns.pause()
    entry = launch.module.entries[number]
    cut, rows = cut_of(entry.kind, entry.tile), Rows(start, n, state_row)
    if cut.rows == 0 or (isinstance(entry.kind, TileKind) and entry.kind.per_row > 1):
        is_first = tile == 0
    else:
        first = tile // cut.across * cut.rows
        rows = Rows(start + first, min(cut.rows, n - first), state_row + first)
        is_first = tile % cut.across == 0
    if is_first:
        Walk(launch, words).phase([Instruction(entry.kind, rows)])
