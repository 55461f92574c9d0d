"""The program of a stage of a mini-batch: phases of instructions over ranges of rows, as words.

What is known of a model's kinds is in arrays, so that compiled code (instructions.py) writes the
programs of a mini-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from harness.engine.backends.cuda.arrays import Words
from harness.engine.backends.cuda.instructions import (
    BatchRows,
    KindTable,
    Runs,
    write_instructions,
)
from harness.engine.backends.cuda.kinds import CopyKind, Kind
from harness.engine.backends.cuda.module import WORDS, Module
from harness.engine.backends.cuda.stage import PlacedKind
from harness.engine.backends.cuda.tiles import Tiling, cut_of, rows_per_vertex
from harness.engine.rows.geometry import TypeGeometry
from harness.engine.rows.rounds import Run
from harness.values.arrays import IntArray

INDEPENDENT = ("eager", "lazy", "backward_lazy")  # stages of all rows, in which none waits
NO_BATCHES: IntArray = np.zeros((0, 2), dtype=np.int32)
NO_RUN: Run = ("lazy", NO_BATCHES)  # beside which there are kinds that are not of batches
NO_KINDS: IntArray = np.zeros((0, 3), dtype=np.int32)


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


def read_program(module: Module, words: Words) -> list[Phase]:
    """What the words of a program say; those behind its end are left alone."""
    n_phases = int(words[0])
    ends = words[1 : 2 + n_phases].tolist()
    table = words[2 + n_phases :][: ends[-1] * WORDS].reshape(-1, WORDS).tolist()
    found = [
        Instruction(module.entries[number].kind, Rows(start, n, state_row))
        for number, start, n, state_row, *_ in table
    ]
    return [found[first:last] for first, last in pairwise(ends)]


@dataclass(frozen=True, eq=False, slots=True)
class Writer:
    """Writes the programs of one kernel.

    stages: of the kernel, by their place in the table. first_type: the lowest id of a function.
    numbers: of kinds in the table, by id of the kind itself, not of its value, whose hash takes
    longer than all the rest.
    """

    module: Module
    stages: tuple[str, ...]
    first_type: int
    table: KindTable
    numbers: Mapping[int, int]

    @classmethod
    def of(
        cls,
        module: Module,
        tiling: Tiling,
        kinds: Iterable[Kind],
        stages: Mapping[str, Mapping[int, Sequence[PlacedKind]]],
        type_ids: Sequence[int],
    ) -> Writer:
        """Of one module; kinds: all that its instructions will have, equal ones too.

        stages: those of the kernel, of each function its kinds.
        """
        entries: dict[Kind, list[int]] = {}
        for number, entry in enumerate(module.entries):
            entries.setdefault(entry.kind, []).append(number)
        place = {kind: k for k, kind in enumerate(entries)}
        numbers = {id(kind): place[kind] for kind in kinds}
        types = range(min(type_ids, default=0), max(type_ids, default=0) + 1)
        placed, starts = [], [0]
        for of_type in stages.values():
            for type_id in types:
                mine = of_type.get(type_id, ())
                placed += [(numbers[id(one.kind)], one.phase, one.on_edges) for one in mine]
                starts.append(len(placed))
        n_variants = len(tiling.products)
        cuts = [cut_of(one.kind, one.tile) for one in module.entries]
        table = KindTable(
            starts=np.array(starts, dtype=np.int32),
            placed=_rows(placed, 3),
            entries=_rows(
                [e * n_variants if len(e) == 1 else e for e in entries.values()], n_variants
            ),
            per_row=np.array([rows_per_vertex(kind) for kind in entries], dtype=np.int32),
            is_copy=np.array([isinstance(kind, CopyKind) for kind in entries], dtype=np.bool_),
            cuts=_rows([(cut.rows, cut.across) for cut in cuts], 2),
            limits=np.array([limit for limit, _ in tiling.products], dtype=np.int64),
        )
        return cls(module, tuple(stages), types[0], table, numbers)

    def kind_rows(self, kinds: Iterable[tuple[Kind, int, int]]) -> IntArray:
        """Kinds that are not of batches, each with its phase and its rows, for `write`."""
        return _rows([(self.numbers[id(kind)], phase, n) for kind, phase, n in kinds], 3)

    def write(self, runs: Sequence[Run], rows: BatchRows, others: IntArray = NO_KINDS) -> Words:
        """The words of a program that does one run after another.

        others: kinds that are not of batches, beside the phases of the last run (see kind_rows).
        """
        batches = [batch for _, batch in runs]
        n_batches = [len(batch) for batch in batches]
        stages = [self.stages.index(stage) for stage, _ in runs]
        words: Words = write_instructions(
            self.table,
            rows,
            Runs(
                np.concatenate([NO_BATCHES, *batches]),
                np.cumsum([0, *n_batches]),
                np.array(stages, dtype=np.int64),
                np.array([stage in INDEPENDENT for stage, _ in runs], dtype=np.bool_),
            ),
            self.first_type,
            others,
        )
        return words


def batch_rows(types: Mapping[int, TypeGeometry], type_ids: Iterable[int]) -> BatchRows:
    """Where the batches of all functions begin, those without rows too; type_ids: of these."""
    wanted = list(type_ids)
    lowest = min(wanted, default=0)
    n_types = max(wanted, default=0) - lowest + 1
    first, n_batches = np.full(n_types, -1, dtype=np.int32), np.zeros(n_types, dtype=np.int32)
    is_whole = np.zeros(n_types, dtype=np.bool_)
    bounds, n = [NO_KINDS], 0
    for type_id, geometry in types.items():
        starts, each, t = geometry.rows.starts, geometry.gathers.get(None), type_id - lowest
        first[t], n_batches[t], is_whole[t] = n, len(starts) - 1, geometry.contiguous
        mine = np.zeros((len(starts), 3), dtype=np.int32)
        mine[:, 0], mine[:-1, 1] = starts, geometry.rows.first_row
        if each is not None:
            mine[:, 2] = each.edge_start[starts]
        bounds.append(mine)
        n += len(starts)
    return BatchRows(first, n_batches, is_whole, np.concatenate(bounds))


def _rows(values: Sequence[Sequence[int]], width: int) -> IntArray:
    return np.array(values, dtype=np.int32).reshape(-1, width)
