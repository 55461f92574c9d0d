"""Fold's weaver: assigns depths to ops, inserts pass-throughs, and lists the rows that ops gather.

A call runs one depth after its deepest argument. An argument of smaller depth is deepened: it is
copied once for every level up to the call, and all readers share the copies.

Source: the release of Looks et al., ICLR 2017, tensorflow_fold/loom/weaver.cc, `CallOp`,
`AlignedCallOp` and `Deepen`; compiled, like the release. Pass-throughs of a level are in the order
of the vertices whose values they copy, not in the order of requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.contracts.system import Counters
from dynbatch.harness.values.arrays import IntArray, IntTable
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.systems.on_tensorflow.loom import FLOAT_BYTES, LoomTables


class Weaving(NamedTuple):
    """Wiring of some examples before others are added: calls by depth, without row numbers.

    Attributes:
        counts: (max_depth + 1, n_ops), calls of every op at every depth; at depth 0 those of a
            pass-through are the rows of its type shape in the initial state.
        producers: (m,), op of the previous depth that computes each argument, in the order of
            (depth, slot, call).
        positions: (m,), index of the argument among the calls of that op.
        outputs: (3, k), depth, op and position of the deepest copy of every output.
    """

    counts: IntTable
    producers: IntArray
    positions: IntArray
    outputs: IntTable


class Values(NamedTuple):
    """Values that calls read.

    A vertex has one column per value: the outputs of its call by type shape, then its own rows of
    the initial state by type shape.

    Attributes:
        first: (n, 2 n_shapes), first depth at which a value exists.
        last: (n, 2 n_shapes), last depth at which the value or a copy of it is needed.
        start: (n, 2 n_shapes), index of the value's first entry in `positions`.
        positions: (p,), indices of the value and its copies among the calls of one op at one depth,
            level by level.
    """

    first: IntTable
    last: IntTable
    start: IntTable
    positions: IntArray


def weave(mini_batch: MiniBatch, tables: LoomTables, output_shape: int) -> Weaving:
    """Weave the graph of a mini-batch.

    Args:
        mini_batch: its outputs are distinct vertices.
        output_shape: type shape of all outputs.
    """
    graph = mini_batch.graph
    return _weave(
        graph.types, graph.arg_start, graph.args, mini_batch.outputs, tables, output_shape
    )


@compiled
def _weave(
    types: IntArray,
    arg_start: IntArray,
    args: IntArray,
    outputs: IntArray,
    tables: LoomTables,
    output_shape: int,
) -> Weaving:
    ops = tables.op_of_type[types]
    depth = _compute_depths(ops, arg_start, args)
    # Owner and column of the value of every argument of every call, by vertex.
    owners, columns = _find_arguments(types, ops, arg_start, args, tables)
    first, last = _compute_live_ranges(types, ops, depth, owners, columns, tables)
    counts, values = _assign_positions(ops, depth, first, last, len(tables.gives))
    producers, positions = _wire_arguments(ops, depth, owners, columns, counts, values, tables)
    deepest = np.empty((3, len(outputs)), np.int32)
    for k in range(len(outputs)):
        v = outputs[k]
        column = output_shape if ops[v] >= 0 else output_shape + len(tables.widths)
        deepest[0, k] = last[v, column]
        deepest[1, k], deepest[2, k] = _find_producer(v, column, last[v, column], ops, values)
    return Weaving(counts, producers, positions, deepest)


@helper
def _compute_depths(ops: IntArray, arg_start: IntArray, args: IntArray) -> IntArray:
    """Return depths: one more than the deepest argument's; 0 for rows of the initial state."""
    depth = np.zeros(len(ops), np.int32)
    for v in range(len(ops)):
        if ops[v] >= 0:
            depth[v] = 1
            for edge in range(arg_start[v], arg_start[v + 1]):
                depth[v] = max(depth[v], depth[args[edge]] + 1)
    return depth


@helper
def _find_arguments(
    types: IntArray, ops: IntArray, arg_start: IntArray, args: IntArray, tables: LoomTables
) -> tuple[IntTable, IntTable]:
    """Return owner and column of the value of each argument of a call (n, a)."""
    n_shapes = len(tables.widths)
    owners = np.empty((len(types), tables.sources.shape[1]), np.int32)
    columns = np.empty_like(owners)
    for v in range(len(types)):
        if ops[v] < 0:
            continue
        begin = tables.slot_start[ops[v]]
        for k in range(tables.slot_start[ops[v] + 1] - begin):
            source, shape = tables.sources[types[v], k], tables.slot_shape[begin + k]
            owner = v if source < 0 else args[arg_start[v] + source]
            owners[v, k] = owner
            columns[v, k] = shape if source >= 0 and ops[owner] >= 0 else shape + n_shapes
    return owners, columns


@helper
def _compute_live_ranges(
    types: IntArray,
    ops: IntArray,
    depth: IntArray,
    owners: IntTable,
    columns: IntTable,
    tables: LoomTables,
) -> tuple[IntTable, IntTable]:
    """Return first and last depth of every value (n, 2 n_shapes); last < first if there is none."""
    n, n_shapes = len(ops), len(tables.widths)
    first = np.zeros((n, 2 * n_shapes), np.int32)
    last = np.full((n, 2 * n_shapes), -1, np.int32)
    for v in range(n):
        if ops[v] < 0:
            last[v, n_shapes + tables.row_of_type[types[v]]] = 0
            continue
        for shape in range(n_shapes):
            first[v, shape] = depth[v]
            if tables.gives[ops[v], shape]:
                last[v, shape] = depth[v]
        for k in range(tables.slot_start[ops[v] + 1] - tables.slot_start[ops[v]]):
            owner, column = owners[v, k], columns[v, k]
            last[owner, column] = max(last[owner, column], depth[v] - 1)
    return first, last


@helper
def _assign_positions(
    ops: IntArray, depth: IntArray, first: IntTable, last: IntTable, n_ops: int
) -> tuple[IntTable, Values]:
    """Count calls by depth and op, and assign each its position among those."""
    n, n_columns = first.shape
    n_shapes = n_columns // 2
    start = np.zeros((n, n_columns), np.int32)
    n_positions = 0
    for v in range(n):
        for column in range(n_columns):
            start[v, column] = n_positions
            n_positions += max(0, last[v, column] - first[v, column] + 1)
    counts = np.zeros((depth.max() + 1, n_ops), np.int32)
    positions = np.empty(n_positions, np.int32)
    for v in range(n):
        position = 0
        if ops[v] >= 0:
            position = counts[depth[v], ops[v]]
            counts[depth[v], ops[v]] += 1
        for column in range(n_columns):
            shape = column % n_shapes
            into = start[v, column] - first[v, column]
            for at in range(first[v, column], last[v, column] + 1):
                if column < n_shapes and at == first[v, column]:
                    positions[into + at] = position
                else:
                    positions[into + at] = counts[at, shape]
                    counts[at, shape] += 1
    return counts, Values(first, last, start, positions)


@helper
def _find_producer(v: int, column: int, at: int, ops: IntArray, values: Values) -> tuple[int, int]:
    """Return the op of a value or of its copy at depth `at`, and its position among its calls."""
    n_shapes = values.first.shape[1] // 2
    is_copy = at > values.first[v, column] or column >= n_shapes
    producer = column % n_shapes if is_copy else ops[v]
    return producer, values.positions[values.start[v, column] + at - values.first[v, column]]


@helper
def _wire_arguments(
    ops: IntArray,
    depth: IntArray,
    owners: IntTable,
    columns: IntTable,
    counts: IntTable,
    values: Values,
    tables: LoomTables,
) -> tuple[IntArray, IntArray]:
    """Return producer and position of every argument, in the order of (depth, slot, call)."""
    starts = compute_slot_starts(counts, tables.slot_start)
    producers = np.empty(starts[-1, -1], np.int32)
    positions = np.empty(starts[-1, -1], np.int32)
    n_columns = values.first.shape[1]
    own = np.zeros_like(counts)  # number of calls so far, by depth and op
    for v in range(len(ops)):
        if ops[v] >= 0:
            position = own[depth[v], ops[v]]
            own[depth[v], ops[v]] += 1
            begin = tables.slot_start[ops[v]]
            for k in range(tables.slot_start[ops[v] + 1] - begin):
                wire = starts[depth[v], begin + k] + position
                producers[wire], positions[wire] = _find_producer(
                    owners[v, k], columns[v, k], depth[v] - 1, ops, values
                )
        for column in range(n_columns):
            shape = column % (n_columns // 2)
            for at in range(values.first[v, column] + 1, values.last[v, column] + 1):
                call = values.positions[values.start[v, column] + at - values.first[v, column]]
                wire = starts[at, shape] + call
                producers[wire], positions[wire] = _find_producer(v, column, at - 1, ops, values)
    return producers, positions


@compiled
def compute_slot_starts(counts: IntTable, slot_start: IntArray) -> IntTable:
    """Return the first wire of every (depth, slot), and the end (n_depths, n_slots + 1)."""
    n_depths, n_ops = counts.shape
    starts = np.zeros((n_depths, slot_start[-1] + 1), np.int32)
    total = 0
    for at in range(n_depths):
        for op in range(n_ops):
            for slot in range(slot_start[op], slot_start[op + 1]):
                starts[at, slot] = total
                if at > 0:
                    total += counts[at, op]
        starts[at, -1] = total
    return starts


class Wiring(NamedTuple):
    """Inputs of the loop for a mini-batch.

    Attributes:
        indices: (m,), rows of the previous state, in the order of (depth, slot, call).
        starts: (max_depth + 1,), first index of each depth from depth 1, and the end.
        sizes: (max_depth, n_slots), number of rows that each slot gathers.
        outputs: (k,), rows of the last state.
        counts: (max_depth + 1, n_ops), calls of every op at every depth.
    """

    indices: IntArray
    starts: IntArray
    sizes: IntTable
    outputs: IntArray
    counts: IntTable

    @property
    def max_depth(self) -> int:
        """Number of iterations of the loop."""
        return len(self.sizes)

    def count_work(self, tables: LoomTables, output_shape: int, n_passes: int) -> Counters:
        """Count nonempty calls without pass-throughs, and all gathers and concatenations.

        Args:
            n_passes: 2 if a gradient is computed, which scatters gathered rows and cuts
                concatenated ones; otherwise 1.
        """
        n_shapes = tables.n_shapes
        reads = np.add.reduceat(tables.widths[tables.slot_shape], tables.slot_start[:-1])
        moved = reads + tables.gives @ tables.widths
        n_numbers = int((self.counts[1:] @ moved).sum())
        n_numbers += len(self.outputs) * int(tables.widths[output_shape])
        n_copies = self.max_depth * (tables.n_slots + n_shapes) + 1
        return Counters(
            n_batches=int(np.count_nonzero(self.counts[1:, n_shapes:])),
            bytes_copied=FLOAT_BYTES * n_numbers * n_passes,
            n_copies=n_copies * n_passes,
        )


def merge_weavings(weavings: Sequence[Weaving], tables: LoomTables) -> Weaving:
    """Join weavings of consecutive examples to the weaving of all of them, in order."""
    if len(weavings) == 1:
        return weavings[0]
    n_depths = max(len(weaving.counts) for weaving in weavings)
    counts = np.zeros((n_depths, tables.n_ops), dtype=np.int32)
    shifts = []
    for weaving in weavings:
        shifts.append(counts.copy())
        counts[: len(weaving.counts)] += weaving.counts
    starts = compute_slot_starts(counts, tables.slot_start)
    producers = np.empty(starts[-1, -1], dtype=np.int32)
    positions = np.empty(starts[-1, -1], dtype=np.int32)
    outputs = []
    for weaving, shift in zip(weavings, shifts, strict=True):
        _write_wires(weaving, shift, starts, tables.slot_start, producers, positions)
        at, op, position = weaving.outputs
        outputs.append(np.stack([at, op, position + shift[at, op]]))
    return Weaving(counts, producers, positions, np.concatenate(outputs, axis=1))


@compiled
def _write_wires(
    weaving: Weaving,
    shift: IntTable,
    starts: IntTable,
    slot_start: IntArray,
    producers: IntArray,
    positions: IntArray,
) -> None:
    """Write a weaving's wires after those of the `shift` calls that precede its own."""
    counts = weaving.counts
    wire = 0
    for at in range(1, len(counts)):
        for op in range(counts.shape[1]):
            for slot in range(slot_start[op], slot_start[op + 1]):
                into = starts[at, slot] + shift[at, op]
                for call in range(counts[at, op]):
                    producer = weaving.producers[wire]
                    producers[into + call] = producer
                    positions[into + call] = weaving.positions[wire] + shift[at - 1, producer]
                    wire += 1


@compiled
def finalize_weaving(weaving: Weaving, tables: LoomTables, output_shape: int) -> Wiring:
    """Deepen the outputs to the last depth, and convert (producer, position) to rows of states."""
    slot_start, counts = tables.slot_start, weaving.counts.copy()
    max_depth = len(counts) - 1
    first = np.empty(len(counts), np.int32)  # next position for a copy of an output
    for at in range(len(counts)):
        first[at] = counts[at, output_shape]
    outputs = weaving.outputs
    for k in range(outputs.shape[1]):
        for at in range(outputs[0, k] + 1, max_depth + 1):
            counts[at, output_shape] += 1
    bases = _compute_bases(counts, tables.gives)
    starts = compute_slot_starts(counts, slot_start)
    indices = np.empty(starts[-1, -1], np.int32)
    wire = 0
    for at in range(1, max_depth + 1):
        for op in range(counts.shape[1]):
            for slot in range(slot_start[op], slot_start[op + 1]):
                for call in range(weaving.counts[at, op]):
                    base = bases[at - 1, weaving.producers[wire], tables.slot_shape[slot]]
                    indices[starts[at, slot] + call] = base + weaving.positions[wire]
                    wire += 1
    rows = np.empty(outputs.shape[1], np.int32)
    for k in range(outputs.shape[1]):
        at, op, position = outputs[0, k], outputs[1, k], outputs[2, k]
        row = bases[at, op, output_shape] + position
        while at < max_depth:
            at += 1
            indices[starts[at, output_shape] + first[at]] = row
            row = bases[at, output_shape, output_shape] + first[at]
            first[at] += 1
        rows[k] = row
    of_depths = np.empty(max_depth + 1, np.int32)
    for at in range(max_depth):
        of_depths[at] = starts[at + 1, 0]
    of_depths[max_depth] = starts[-1, -1]
    return Wiring(indices, of_depths, _compute_sizes(counts, slot_start), rows, counts)


@helper
def _compute_bases(counts: IntTable, gives: IntTable) -> IntArray:
    """Return the first row of an op in the state of a type shape (n_depths, n_ops, n_shapes)."""
    n_depths, n_ops = counts.shape
    bases = np.zeros((n_depths, n_ops, gives.shape[1]), np.int32)
    for at in range(n_depths):
        for shape in range(gives.shape[1]):
            total = 0
            for op in range(n_ops):
                if gives[op, shape]:
                    bases[at, op, shape] = total
                    total += counts[at, op]
    return bases


@helper
def _compute_sizes(counts: IntTable, slot_start: IntArray) -> IntTable:
    """Return the number of rows that every slot gathers (max_depth, n_slots)."""
    sizes = np.empty((len(counts) - 1, slot_start[-1]), np.int32)
    for at in range(1, len(counts)):
        for op in range(counts.shape[1]):
            sizes[at - 1, slot_start[op] : slot_start[op + 1]] = counts[at, op]
    return sizes
