"""The program of a stage of a mini-batch: phases of instructions over ranges of rows, as words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.engine.backends.cuda.arrays import Words
from harness.engine.backends.cuda.kinds import CopyKind, Kind, TileKind
from harness.engine.backends.cuda.module import WORDS, Module
from harness.engine.backends.cuda.stage import PlacedKind
from harness.engine.backends.cuda.tiles import Tiling, n_tiles
from harness.engine.rows.geometry import TypeGeometry
from harness.engine.rows.rounds import ALL_ROWS


@dataclass(frozen=True, slots=True)
class Rows:
    """A range of a function's rows (or edges), and where the first is among those of the states."""

    start: int
    n: int
    state_row: int = 0


@dataclass(frozen=True, slots=True)
class Instruction:
    """A kind over a range of rows."""

    kind: Kind
    rows: Rows


Phase = list[Instruction]


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a module calls its kinds, those for few rows first.

    by_id: of the kind itself, not of its value, whose hash takes longer than all the rest.
    """

    module: Module
    tiling: Tiling
    by_id: Mapping[int, Sequence[int]]

    @classmethod
    def of(cls, module: Module, tiling: Tiling, kinds: Iterable[Kind]) -> Numbers:
        """Of one module; kinds: all that instructions will have, equal ones too."""
        numbers: dict[Kind, list[int]] = {}
        for number, entry in enumerate(module.entries):
            numbers.setdefault(entry.kind, []).append(number)
        return cls(module, tiling, {id(kind): numbers[kind] for kind in kinds})

    def words(self, phases: Sequence[Phase]) -> Words:
        """Phases as the words of a program."""
        counts = [len(phase) for phase in phases]
        head = np.zeros(2 + len(phases), dtype=np.int32)
        head[0] = len(phases)
        head[2:] = np.cumsum(counts)
        table = np.zeros((sum(counts), WORDS), dtype=np.int32)
        for k, one in enumerate(one for phase in phases for one in phase):
            table[k, :5] = self._instruction(one)
        return np.concatenate([head, table.ravel()])

    def _instruction(self, one: Instruction) -> tuple[int, int, int, int, int]:
        numbers = self.by_id[id(one.kind)]
        n_rows = one.rows.n * (one.kind.per_row if isinstance(one.kind, TileKind) else 1)
        number = numbers[self.tiling.variant(n_rows)] if len(numbers) > 1 else numbers[0]
        tiles = n_tiles(one.kind, self.module.entries[number].tile, one.rows.n)
        return number, one.rows.start, one.rows.n, one.rows.state_row, tiles


def batch_phases(
    kinds: Mapping[int, Sequence[PlacedKind]],
    types: Mapping[int, TypeGeometry],
    batches: Iterable[tuple[int, int]],
    *,
    at_once: bool,
) -> list[Phase]:
    """Phases of all batches (type id, position), one batch behind the other.

    at_once: batches do not depend on each other: the first phases of all of them are one, and so
    on. A function whose rows do not follow one another among those of the states is taken batch by
    batch where all of its rows are asked for.
    """
    found: list[Phase] = []
    for type_id, position in batches:
        geometry, mine = types.get(type_id), kinds.get(type_id, ())
        if geometry is None or not mine:
            continue
        phases: list[Phase] = [[] for _ in range(1 + max(one.phase for one in mine))]
        for rows, edges in _ranges(geometry, position):
            for one in mine:
                chosen = edges if one.on_edges else rows
                if chosen.n:
                    _add(phases[one.phase], Instruction(one.kind, chosen))
        if at_once:
            found += [[] for _ in range(len(phases) - len(found))]
            for k, phase in enumerate(phases):
                for instruction in phase:
                    _add(found[k], instruction)
        else:
            found += phases
    return [phase for phase in found if phase]


def _add(phase: Phase, instruction: Instruction) -> None:
    """A copy has no rows: once in a phase is enough, whoever asks for it."""
    copies = isinstance(instruction.kind, CopyKind)
    if not copies or all(one.kind != instruction.kind for one in phase):
        phase.append(instruction)


def _ranges(geometry: TypeGeometry, position: int) -> Iterable[tuple[Rows, Rows]]:
    starts, first_row = geometry.rows.starts, geometry.rows.first_row
    each = geometry.gathers.get(None)
    if position != ALL_ROWS:
        bounds = [(int(starts[position]), int(starts[position + 1]), int(first_row[position]))]
    elif geometry.contiguous:
        bounds = [(0, geometry.rows.n, int(first_row[0]))]
    else:
        bounds = [
            (int(starts[b]), int(starts[b + 1]), int(first_row[b])) for b in range(len(first_row))
        ]
    for start, end, state_row in bounds:
        edges = Rows(0, 0)
        if each is not None:
            first = int(each.edge_start[start])
            edges = Rows(first, int(each.edge_start[end]) - first)
        yield Rows(start, end - start, state_row), edges
