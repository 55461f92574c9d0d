"""Device programs of mini-batches: phases of instructions over ranges of rows, as int32 arrays.

Arrays describe the kinds of a model. From these, compiled code writes the programs of a mini-batch:
phase by phase, the instructions of the kinds of every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.engine.backends.cuda.kinds import (
    CopyKind,
    Kind,
    TileKind,
    Tiling,
    UnbatchedKind,
    cut,
    has_state_rows,
)
from dynbatch.harness.engine.backends.cuda.module import WORDS, KernelModule
from dynbatch.harness.engine.backends.cuda.stage import PlacedKind
from dynbatch.harness.engine.backends.cuda.words import WordArray, Words
from dynbatch.harness.engine.lowering.plan import WHOLE_STAGES
from dynbatch.harness.engine.rows.fields import TypeGeometry
from dynbatch.harness.engine.rows.segments import ALL_ROWS, Run
from dynbatch.harness.values.arrays import Flags, IntArray, Ints, IntTable, Longs

KIND, PHASE, ON_EDGES = 0, 1, 2  # columns of KindTable.placed
START, STATE_ROW, EDGE = 0, 1, 2  # columns of BatchRows.bounds


class KindTable(NamedTuple):
    """Kinds of one kernel.

    Attributes:
        starts: (n_stages * n_types + 1,) offsets in `placed` of each stage and function.
        placed: (n, 3) kind, phase, and whether its rows are edges.
        entries: (n_kinds, n_variants) numbers of tile functions; each variant has a limit of rows.
        per_row: (n_kinds,) tile rows per row of the function.
        is_copy: (n_kinds,) whether the kind is a CopyKind.
        uses_states: (n_kinds,) whether the kind accesses rows by their number among the states.
        cuts: (n_entries, 2) see kinds.cut.
        limits: (n_variants,) largest number of rows of each variant.
    """

    starts: Ints
    placed: IntTable
    entries: IntTable
    per_row: Ints
    is_copy: Flags
    uses_states: Flags
    cuts: IntTable
    limits: Longs


class BatchRows(NamedTuple):
    """Rows of all batches of a mini-batch.

    Attributes:
        first: (n_types,) index in `bounds` of each function's first batch; -1 if it has none.
        n_batches: (n_types,) number of batches.
        is_whole: (n_types,) whether a function's rows are consecutive among the rows of the states.
        bounds: (n, 3) first row, first state row and first edge of each batch; after the batches of
            a function, the end of the last one.
    """

    first: Ints
    n_batches: Ints
    is_whole: Flags
    bounds: IntTable


class Runs(NamedTuple):
    """Runs of stages over batches.

    Attributes:
        batches: (n, 2) type id and position.
        starts: (n_runs + 1,) offsets of each run in `batches`.
        stages: (n_runs,) index in KernelProgramWriter.stages.
        at_once: (n_runs,) whether batches are independent, so that phase k of all of them is one
            phase.
    """

    batches: IntTable
    starts: Longs
    stages: Longs
    at_once: Flags


@compiled
def write_instructions(
    kinds: KindTable,
    rows: BatchRows,
    runs: Runs,
    first_type: int,
    others: IntTable,
    first_phases: Ints,
) -> Ints:
    """Write a program: the number of phases, their bounds, and the instructions.

    Args:
        others: (n, 3) kind, phase and rows of kinds without batches, which share the last run's
            phases, or have phases of their own without a run.
        first_phases: (n_batches,) output: the first phase of each batch of the runs.
    """
    room = _bound_instructions(kinds, rows, runs, first_type) + len(others)
    table = np.zeros((room, WORDS), dtype=np.int32)
    ends = np.zeros(room + 1, dtype=np.int32)
    n, n_phases = 0, 0
    n_runs = len(runs.stages)
    for run in range(max(1, n_runs)):
        at, end, kinds_at, at_once = 0, 0, 0, True
        if n_runs > 0:
            at, end, at_once = runs.starts[run], runs.starts[run + 1], runs.at_once[run]
            kinds_at = runs.stages[run] * len(rows.first) - first_type
        while True:
            stop = end if at_once else min(at + 1, end)
            is_last = run >= n_runs - 1 and stop == end
            batches, beside = runs.batches[at:stop], others if is_last else others[:0]
            first_phases[at:stop] = n_phases
            for phase in range(_count_phases(kinds, batches, kinds_at, beside)):
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
    return _join(ends, n_phases, table, n)


@compiled
def write_ahead(
    kinds: KindTable, rows: BatchRows, batches: IntTable, first_phases: Ints, stage: int,
    first_type: int, lag: int, n_phases: int,
) -> Ints:  # fmt: skip
    """Write the program of a stage that runs ahead of the batches, which need its results.

    Phase k of this stage of a batch is phase first_phases + k of the program.

    Args:
        batches: (n_batches, 2) type id and position, in order.
        first_phases: (n_batches,) in ascending order, the first phase of each batch in the batches'
            program.
        lag: number of phases of the stage, less one.
        n_phases: number of phases of the batches' program.
    """
    kinds_at, room = stage * len(rows.first) - first_type, 0
    for type_id, _ in batches:
        room += kinds.starts[kinds_at + type_id + 1] - kinds.starts[kinds_at + type_id]
    table = np.zeros((room, WORDS), dtype=np.int32)
    ends = np.zeros(n_phases + lag + 1, dtype=np.int32)
    n, first = 0, 0
    for phase in range(n_phases + lag):
        n_before = n
        while first < len(batches) and first_phases[first] + lag < phase:
            first += 1
        for b in range(first, len(batches)):
            if first_phases[b] > phase:
                break
            t, k = batches[b, 0] - first_type, kinds_at + batches[b, 0]
            if rows.first[t] >= 0:
                own = phase - first_phases[b]
                n = _write_batch(kinds, rows, t, batches[b, 1], k, own, table, n, n_before)
        ends[phase + 1] = n
    return _join(ends, n_phases + lag, table, n)


@helper
def _join(ends: Ints, n_phases: int, table: IntTable, n: int) -> Ints:
    """Return a program of the first n instructions."""
    program = np.empty(2 + n_phases + n * WORDS, dtype=np.int32)
    program[0] = n_phases
    program[1 : 2 + n_phases] = ends[: n_phases + 1]
    program[2 + n_phases :] = table[:n].ravel()
    return program


@helper
def _bound_instructions(kinds: KindTable, rows: BatchRows, runs: Runs, first_type: int) -> int:
    """Return an upper bound on the number of instructions."""
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
def _count_phases(kinds: KindTable, batches: IntTable, kinds_at: int, others: IntTable) -> int:
    """Return the number of phases of batches that run together and of other kinds."""
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
    """Write one phase of a batch, and return the new number of instructions.

    If all rows of a function are requested, but they are not consecutive among the rows of the
    states, a kind that accesses states has an instruction for each of its batches.
    """
    first, end = rows.first[t], rows.first[t] + rows.n_batches[t]
    if position != ALL_ROWS:
        first, end = first + position, first + position + 1
    for k in range(kinds.starts[kinds_at], kinds.starts[kinds_at + 1]):
        if kinds.placed[k, PHASE] != phase:
            continue
        kind, column = kinds.placed[k, KIND], EDGE if kinds.placed[k, ON_EDGES] else START
        is_cut = kinds.uses_states[kind] and not rows.is_whole[t]
        step = 1 if is_cut else end - first
        for b in range(first, end, step):
            start = rows.bounds[b, column]
            n_rows = rows.bounds[b + step, column] - start
            if n_rows == 0 or (
                kinds.is_copy[kind] and _is_written(kinds, kind, table, phase_at, n)
            ):
                continue
            state_row = 0 if column == EDGE else rows.bounds[b, STATE_ROW]
            n = _write(kinds, kind, start, n_rows, state_row, table, n)
    return n


@helper
def _is_written(kinds: KindTable, kind: int, table: IntTable, first: int, end: int) -> bool:
    """Return whether a copy is already in a phase; a copy has no rows, so once is enough."""
    stands = False
    for at in range(first, end):
        stands |= table[at, 0] == kinds.entries[kind, 0]
    return stands


@helper
def _write(
    kinds: KindTable, kind: int, start: int, n_rows: int, state_row: int, table: IntTable, n: int
) -> int:
    """Write an instruction, and return the new number of instructions."""
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


NO_BATCHES: IntArray = np.zeros((0, 2), dtype=np.int32)
NO_KINDS: IntArray = np.zeros((0, 3), dtype=np.int32)


@dataclass(frozen=True, eq=False, slots=True)
class KernelProgramWriter:
    """Writer of one kernel's programs.

    Attributes:
        stages: stages of the kernel, by their index in the table.
        numbers: index of each kind in the table, by `id` of the kind, because hashing its value
            takes longer than everything else.
    """

    stages: tuple[str, ...]
    first_type: int
    table: KindTable
    numbers: Mapping[int, int]

    @classmethod
    def from_module(
        cls,
        module: KernelModule,
        tiling: Tiling,
        kinds: Iterable[Kind],
        stages: Mapping[str, Mapping[int, Sequence[PlacedKind]]],
        type_ids: Sequence[int],
    ) -> KernelProgramWriter:
        """Build the writer of a module.

        Args:
            kinds: all kinds that instructions will use, including equal ones.
            stages: kinds of each stage of the kernel, by type id.
        """
        entries: dict[Kind, list[int]] = {}
        for number, entry in enumerate(module.entries):
            entries.setdefault(entry.kind, []).append(number)
        position = {kind: k for k, kind in enumerate(entries)}
        numbers = {id(kind): position[kind] for kind in kinds}
        types = range(min(type_ids, default=0), max(type_ids, default=0) + 1)
        placed, starts = [], [0]
        for of_type in stages.values():
            for type_id in types:
                mine = of_type.get(type_id, ())
                placed += [(numbers[id(item.kind)], item.phase, item.on_edges) for item in mine]
                starts.append(len(placed))
        n_variants = len(tiling.products)
        per_row = [kind.per_row if isinstance(kind, TileKind) else 1 for kind in entries]
        table = KindTable(
            starts=np.array(starts, dtype=np.int32),
            placed=_make_table(placed, 3),
            entries=_make_table(
                [e * n_variants if len(e) == 1 else e for e in entries.values()], n_variants
            ),
            per_row=np.array(per_row, dtype=np.int32),
            is_copy=np.array([isinstance(kind, CopyKind) for kind in entries], dtype=np.bool_),
            uses_states=np.array([has_state_rows(kind) for kind in entries], dtype=np.bool_),
            cuts=_make_table([cut(item.kind, item.tile) for item in module.entries], 2),
            limits=np.array([limit for limit, _ in tiling.products], dtype=np.int64),
        )
        return cls(tuple(stages), types[0], table, numbers)

    def make_kind_rows(
        self, kinds: Iterable[UnbatchedKind], count: Callable[[WordArray], int]
    ) -> IntArray:
        """Return kinds without batches, with their phases and rows, as `others` of `write`.

        Args:
            count: returns the length of an array in this mini-batch.
        """
        return _make_table(
            [
                (
                    self.numbers[id(single.kind)],
                    single.phase,
                    single.n_rows if isinstance(single.n_rows, int) else count(single.n_rows),
                )
                for single in kinds
            ],
            3,
        )

    def write(self, runs: Sequence[Run], rows: BatchRows, others: IntArray = NO_KINDS) -> Words:
        """Write a program that executes one run after another.

        Args:
            others: kinds without batches,
                which share the phases of the last run (see make_kind_rows).
        """
        return self._write(list_runs(runs, self.stages), rows, others)[0]

    def _write(self, runs: Runs, rows: BatchRows, others: IntArray) -> tuple[Words, IntArray]:
        """Write a program; return it, and the first phase of each batch."""
        first_phases = np.zeros(len(runs.batches), dtype=np.int32)
        program = write_instructions(self.table, rows, runs, self.first_type, others, first_phases)
        return program, first_phases

    def write_apart(self, runs: Sequence[Run], rows: BatchRows, lag: int) -> tuple[Words, Words]:
        """Write a forward program without the eager stage, and the program of this stage.

        Args:
            lag: see write_ahead.
        """
        mine = list_runs([run for run in runs if run[0] != "eager"], self.stages)
        program, first_phases = self._write(mine, rows, NO_KINDS)
        is_batch = np.repeat(mine.stages == self.stages.index("batch"), np.diff(mine.starts))
        ahead = write_ahead(
            self.table, rows, mine.batches[is_batch], first_phases[is_batch],
            self.stages.index("eager"), self.first_type, lag, int(program[0]),
        )  # fmt: skip
        return program, ahead


def list_runs(runs: Sequence[Run], stages: Sequence[str]) -> Runs:
    """Return runs as arrays.

    Args:
        stages: names of all stages, by index.
    """
    batches = [batch for _, batch in runs]
    return Runs(
        np.concatenate([NO_BATCHES, *batches]),
        np.cumsum([0, *map(len, batches)]),
        np.array([stages.index(stage) for stage, _ in runs], dtype=np.int64),
        np.array([stage in WHOLE_STAGES for stage, _ in runs], dtype=np.bool_),
    )


def find_depth(stage: Mapping[int, Sequence[PlacedKind]]) -> int:
    """Return the number of phases of a stage's deepest function."""
    phases = (kind.phase for placed in stage.values() for kind in placed)
    return max(phases, default=-1) + 1


def build_batch_rows(types: Mapping[int, TypeGeometry], type_ids: Iterable[int]) -> BatchRows:
    """Return the rows of all batches.

    Args:
        type_ids: ids of all functions, including those without rows.
    """
    wanted = list(type_ids)
    lowest = min(wanted, default=0)
    n_types = max(wanted, default=0) - lowest + 1
    first, n_batches = np.full(n_types, -1, dtype=np.int32), np.zeros(n_types, dtype=np.int32)
    is_whole = np.zeros(n_types, dtype=np.bool_)
    bounds, n = [NO_KINDS], 0
    for type_id, geometry in types.items():
        starts, each, t = geometry.starts, geometry.gathers.get(None), type_id - lowest
        first[t], n_batches[t], is_whole[t] = n, len(starts) - 1, geometry.contiguous
        mine = np.zeros((len(starts), 3), dtype=np.int32)
        mine[:, 0], mine[:-1, 1] = starts, geometry.first_row
        if each is not None:
            mine[:, 2] = each.edge_start[starts]
        bounds.append(mine)
        n += len(starts)
    return BatchRows(first, n_batches, is_whole, np.concatenate(bounds))


def _make_table(values: Sequence[Sequence[int]], width: int) -> IntArray:
    return np.array(values, dtype=np.int32).reshape(-1, width)
