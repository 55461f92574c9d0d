"""The program of a stage of a mini-batch: phases of instructions over ranges of rows, as words.

What is known of a model's kinds is in arrays, from which compiled code writes the programs of a
mini-batch: of every batch the instructions of its kinds, phase by phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.engine.backends.cuda.kinds import CopyKind, Kind, Tiling, cut_of, rows_per_vertex
from harness.engine.backends.cuda.module import WORDS, Module
from harness.engine.backends.cuda.stage import PlacedKind
from harness.engine.backends.cuda.words import Words
from harness.engine.rows.fields import TypeGeometry
from harness.engine.rows.layout import ALL_ROWS, Run
from harness.values.arrays import Flags, IntArray, Ints, IntTable, Longs

KIND, PHASE, ON_EDGES = 0, 1, 2  # columns of KindTable.placed
START, STATE_ROW, EDGE = 0, 1, 2  # columns of BatchRows.bounds


class KindTable(NamedTuple):
    """Kinds of one kernel.

    starts (n_stages * n_types + 1,): where those of a stage and a function begin in
    placed (n, 3): kind, phase, and whether its rows are edges.
    entries (n_kinds, n_variants): numbers of functions, of which `limits` (n_variants,) chooses:
        each is for up to so many rows.
    per_row, is_copy (n_kinds,). cuts (n_entries, 2): see kinds.Cut.
    """

    starts: Ints
    placed: IntTable
    entries: IntTable
    per_row: Ints
    is_copy: Flags
    cuts: IntTable
    limits: Longs


class BatchRows(NamedTuple):
    """Rows of all batches of a mini-batch.

    first (n_types,): where the batches of a function begin in `bounds`, -1 where it has none.
    n_batches, is_whole (n_types,): and whether their rows follow one another among the states'.
    bounds (n, 3): of each batch its first row, that among the states', and its first edge; behind
        the batches of a function where its last one ends.
    """

    first: Ints
    n_batches: Ints
    is_whole: Flags
    bounds: IntTable


class Runs(NamedTuple):
    """What is run: batches (n, 2) as type id and position, cut by starts (n_runs + 1,).

    stages (n_runs,): see program.Writer. at_once (n_runs,): whether batches do not depend on each
    other: the first phases of all of them are one, and so on.
    """

    batches: IntTable
    starts: Longs
    stages: Longs
    at_once: Flags


@compiled
def write_instructions(
    kinds: KindTable, rows: BatchRows, runs: Runs, first_type: int, others: IntTable
) -> Ints:
    """Return a program: how many phases it has, where each begins and the last ends, instructions.

    others (n, 3): kind, phase and rows of what is no batch, beside the last run.
    """
    room = _room(kinds, rows, runs, first_type) + len(others)
    table = np.zeros((room, WORDS), dtype=np.int32)
    ends = np.zeros(room + 1, dtype=np.int32)
    n, n_phases = 0, 0
    for run in range(len(runs.stages)):
        at, end = runs.starts[run], runs.starts[run + 1]
        kinds_at = runs.stages[run] * len(rows.first) - first_type
        while True:
            stop = end if runs.at_once[run] else min(at + 1, end)
            is_last = run == len(runs.stages) - 1 and stop == end
            batches, beside = runs.batches[at:stop], others if is_last else others[:0]
            for phase in range(_depth(kinds, batches, kinds_at, beside)):
                n_before = n
                for type_id, position in batches:
                    t, k = type_id - first_type, kinds_at + type_id
                    if rows.first[t] >= 0:
                        n = _write_batch(kinds, rows, t, position, k, phase, table, n, n_before)
                for k in range(len(beside)):
                    if beside[k, PHASE] == phase and beside[k, 2] > 0:
                        n = _write(kinds, beside[k, KIND], 0, beside[k, 2], 0, table, n)
                if n > n_before:
                    n_phases += 1
                    ends[n_phases] = n
            at = stop
            if at == end:
                break
    words = np.empty(2 + n_phases + n * WORDS, dtype=np.int32)
    words[0] = n_phases
    words[1 : 2 + n_phases] = ends[: n_phases + 1]
    words[2 + n_phases :] = table[:n].ravel()
    return words


@helper
def _room(kinds: KindTable, rows: BatchRows, runs: Runs, first_type: int) -> int:
    """Return how many instructions there are at most."""
    n_types, room = len(rows.first), 0
    for run in range(len(runs.stages)):
        for b in range(runs.starts[run], runs.starts[run + 1]):
            t = runs.batches[b, 0] - first_type
            k = runs.stages[run] * n_types + t
            is_split = runs.batches[b, 1] == ALL_ROWS and not rows.is_whole[t]
            n_ranges = rows.n_batches[t] if is_split else 1
            room += (kinds.starts[k + 1] - kinds.starts[k]) * n_ranges
    return room


@helper
def _depth(kinds: KindTable, batches: IntTable, kinds_at: int, others: IntTable) -> int:
    """Return how many phases batches have that are run at once, and what is beside them."""
    depth = 0
    for t, _ in batches:
        for k in range(kinds.starts[kinds_at + t], kinds.starts[kinds_at + t + 1]):
            depth = max(depth, kinds.placed[k, PHASE] + 1)
    for k in range(len(others)):
        depth = max(depth, others[k, PHASE] + 1)
    return depth


@helper
def _write_batch(
    kinds: KindTable, rows: BatchRows, t: int, position: int, kinds_at: int, phase: int,
    table: IntTable, n: int, phase_at: int,
) -> int:  # fmt: skip
    """Write one phase of a batch.

    A function whose rows do not follow one another among those of the states is taken batch by
    batch where all of its rows are asked for.
    """
    first, end = rows.first[t], rows.first[t] + rows.n_batches[t]
    step = end - first
    if position != ALL_ROWS:
        first, end, step = first + position, first + position + 1, 1
    elif not rows.is_whole[t]:
        step = 1
    for b in range(first, end, step):
        for k in range(kinds.starts[kinds_at], kinds.starts[kinds_at + 1]):
            if kinds.placed[k, PHASE] != phase:
                continue
            kind, of = kinds.placed[k, KIND], EDGE if kinds.placed[k, ON_EDGES] else START
            start = rows.bounds[b, of]
            n_rows = rows.bounds[b + step, of] - start
            if n_rows == 0 or (kinds.is_copy[kind] and _stands(kinds, kind, table, phase_at, n)):
                continue
            state_row = 0 if of == EDGE else rows.bounds[b, STATE_ROW]
            n = _write(kinds, kind, start, n_rows, state_row, table, n)
    return n


@helper
def _stands(kinds: KindTable, kind: int, table: IntTable, first: int, end: int) -> bool:
    """Return whether a copy, which has no rows, stands in a phase: once is enough, whoever asks."""
    stands = False
    for at in range(first, end):
        stands |= table[at, 0] == kinds.entries[kind, 0]
    return stands


@helper
def _write(
    kinds: KindTable, kind: int, start: int, n_rows: int, state_row: int, table: IntTable, n: int
) -> int:
    """Write an instruction; returns how many there are then."""
    n_counted = n_rows * kinds.per_row[kind]
    variant = 0
    while n_counted > kinds.limits[variant]:
        variant += 1
    entry = kinds.entries[kind, variant]
    n_tiles = kinds.cuts[entry, 1]
    if kinds.cuts[entry, 0] > 0:
        n_tiles *= (n_counted + kinds.cuts[entry, 0] - 1) // kinds.cuts[entry, 0]
    table[n, 0], table[n, 1], table[n, 2] = entry, start, n_rows
    table[n, 3], table[n, 4] = state_row, n_tiles
    return n + 1


INDEPENDENT = ("eager", "lazy", "backward_lazy")  # stages of all rows, in which none waits
NO_BATCHES: IntArray = np.zeros((0, 2), dtype=np.int32)
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
