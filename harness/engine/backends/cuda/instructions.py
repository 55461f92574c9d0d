"""Writes programs, compiled: of every batch the instructions of its kinds, phase by phase."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.engine.backends.cuda.module import WORDS
from harness.engine.rows.rounds import ALL_ROWS
from harness.values.arrays import Flags, Ints, IntTable, Longs

KIND, PHASE, ON_EDGES = 0, 1, 2  # columns of KindTable.placed
START, STATE_ROW, EDGE = 0, 1, 2  # columns of BatchRows.bounds


class KindTable(NamedTuple):
    """Kinds of one kernel.

    starts (n_stages * n_types + 1,): where those of a stage and a function begin in
    placed (n, 3): kind, phase, and whether its rows are edges.
    entries (n_kinds, n_variants): numbers of functions, of which `limits` (n_variants,) chooses:
        each is for up to so many rows.
    per_row, is_copy (n_kinds,). cuts (n_entries, 2): see tiles.Cut.
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
