"""From weavings to the index vectors that the loop reads: merged, deepened to the end, placed.

Source: the release of Looks et al., ICLR 2017, tensorflow_fold/loom/weaver.cc,
`MergeFromSerialized` and `Finalize`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.contracts.system import Counters
from harness.values.arrays import IntArray, IntTable
from systems.on_tensorflow.loom.ops import FLOAT_BYTES, LoomTables
from systems.on_tensorflow.loom.weaver import Weaving, slot_starts


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a mini-batch feeds to the loop.

    indices (m,): rows of the state before, in the order of (depth, slot, call). starts
    (max_depth + 1,): where each depth's begin, from depth 1, and the end. sizes (max_depth,
    n_slots): how many each slot gathers. outputs (k,): rows of the last state. counts (max_depth +
    1, n_ops): calls of every op at every depth.
    """

    indices: IntArray
    starts: IntArray
    sizes: IntTable
    outputs: IntArray
    counts: IntTable

    @property
    def max_depth(self) -> int:
        """Turns of the loop."""
        return len(self.sizes)

    def counters(self, tables: LoomTables, output_shape: int, n_passes: int) -> Counters:
        """Calls that are not empty, pass-throughs left out; every gather and concatenation.

        n_passes: 2 where a gradient is computed, which scatters what was gathered and cuts what was
        concatenated, 1 elsewhere.
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


def merged(weavings: Sequence[Weaving], tables: LoomTables) -> Weaving:
    """One weaving of all examples, those of the first before those of the second, and so on."""
    if len(weavings) == 1:
        return weavings[0]
    n_depths = max(len(weaving.counts) for weaving in weavings)
    counts = np.zeros((n_depths, tables.n_ops), dtype=np.int32)
    shifts = []
    for weaving in weavings:
        shifts.append(counts.copy())
        counts[: len(weaving.counts)] += weaving.counts
    starts = slot_starts(counts, tables.slot_start)
    producers = np.empty(starts[-1, -1], dtype=np.int32)
    positions = np.empty(starts[-1, -1], dtype=np.int32)
    outputs = []
    for weaving, shift in zip(weavings, shifts, strict=True):
        _place_behind(weaving, shift, starts, tables.slot_start, producers, positions)
        at, op, position = weaving.outputs
        outputs.append(np.stack([at, op, position + shift[at, op]]))
    return Weaving(counts, producers, positions, np.concatenate(outputs, axis=1))


@compiled
def _place_behind(
    weaving: Weaving,
    shift: IntTable,
    starts: IntTable,
    slot_start: IntArray,
    producers: IntArray,
    positions: IntArray,
) -> None:
    """Write a weaving's wires behind those of the `shift` calls before its own."""
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


def finalized(weaving: Weaving, tables: LoomTables, output_shape: int) -> Wiring:
    """Deepen the outputs to the end, and turn (producer, position) into rows of states."""
    indices, starts, sizes, outputs, counts = _finalize(
        weaving, output_shape, tables.slot_start, tables.slot_shape, tables.gives
    )
    return Wiring(indices, starts, sizes, outputs, counts)


@compiled
def _finalize(
    weaving: Weaving, output_shape: int, slot_start: IntArray, slot_shape: IntArray, gives: IntTable
) -> tuple[IntArray, IntArray, IntTable, IntArray, IntTable]:
    counts = weaving.counts.copy()
    max_depth = len(counts) - 1
    first = np.empty(len(counts), np.int32)  # of the copies of outputs, behind all others
    for at in range(len(counts)):
        first[at] = counts[at, output_shape]
    outputs = weaving.outputs
    for k in range(outputs.shape[1]):
        for at in range(outputs[0, k] + 1, max_depth + 1):
            counts[at, output_shape] += 1
    bases = _bases(counts, gives)
    starts = slot_starts(counts, slot_start)
    indices = np.empty(starts[-1, -1], np.int32)
    wire = 0
    for at in range(1, max_depth + 1):
        for op in range(counts.shape[1]):
            for slot in range(slot_start[op], slot_start[op + 1]):
                for call in range(weaving.counts[at, op]):
                    base = bases[at - 1, weaving.producers[wire], slot_shape[slot]]
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
    return indices, of_depths, _sizes(counts, slot_start), rows, counts


@helper
def _bases(counts: IntTable, gives: IntTable) -> IntArray:
    """Where an op's rows begin in the state of a type shape (n_depths, n_ops, n_shapes)."""
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
def _sizes(counts: IntTable, slot_start: IntArray) -> IntTable:
    """How many rows every slot gathers (max_depth, n_slots)."""
    sizes = np.empty((len(counts) - 1, slot_start[-1]), np.int32)
    for at in range(1, len(counts)):
        for op in range(counts.shape[1]):
            sizes[at - 1, slot_start[op] : slot_start[op + 1]] = counts[at, op]
    return sizes
