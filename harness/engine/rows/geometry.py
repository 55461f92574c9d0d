"""Everything about one mini-batch that the executor needs: rows, gathers and pulls of every
type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.engine.lowering.plan import Plan, Slots
from harness.engine.rows.layout import (
    EMPTY,
    Gather,
    Index,
    Layout,
    TypeRows,
    contiguous_runs,
    plan_gather,
    plan_gather_each,
)
from harness.machine.compiled import compiled
from harness.values.graph import Graph, MiniBatch
from harness.values.instances import IntArray


@dataclass(frozen=True, eq=False, slots=True)
class TypeGeometry:
    """One type in one mini-batch.

    gathers: by slots (None: every child). pulls: by name, one int64 a row of the type.
    largest: rows of the largest batch. contiguous: all batches of the type follow one another among
    the state rows.
    goes_back_at_once: whether the backward stage may take all rows, as that of outputs does.
    """

    rows: TypeRows
    gathers: Mapping[Slots, Gather]
    pulls: Mapping[str, Index]
    largest: int
    contiguous: bool
    goes_back_at_once: bool = False

    @property
    def n_at_once(self) -> int:
        """The most rows that a stage which takes batch by batch gets."""
        return self.rows.n if self.goes_back_at_once else self.largest

    @property
    def n_edges(self) -> int:
        """Incoming edges of all vertices, where the type gathers any number of children."""
        return int(self.gathers[None].edge_start[-1]) if None in self.gathers else 0


@dataclass(frozen=True, slots=True)
class Reads:
    """What a plan reads: the groups of slots that it gathers (None: every child), and pulls."""

    slots: tuple[Slots, ...]
    pulls: tuple[str, ...]


def reads_of(plan: Plan) -> Reads:
    """Find them, once and not with every mini-batch."""
    slots: set[Slots] = set(plan.slots.values())
    if any(node.op == "gather_each" for node in plan.nodes):
        slots.add(None)
    pulls = {node.name for node in plan.nodes if node.op == "pull"}
    return Reads(tuple(sorted(slots, key=str)), tuple(sorted(pulls)))


def type_geometry(
    reads: Reads, mini_batch: MiniBatch, layout: Layout, rows: TypeRows
) -> TypeGeometry:
    """Plan the gathers and pulls of one vertex function over its rows."""
    gathers = {slots: _plan_gather(mini_batch.graph, layout, rows, slots) for slots in reads.slots}
    pulls = {name: _pulled(mini_batch.pulls[name], rows.vertices) for name in reads.pulls}
    return TypeGeometry(rows, gathers, pulls, *_sizes(rows.starts, rows.first_row))


@dataclass(frozen=True, eq=False, slots=True)
class OutputRows:
    """Rows of one output function: a batch for each round in which it reads anything.

    order (n,): which output each row is. rounds (n_batches,): of each batch.
    """

    geometry: TypeGeometry
    order: Index
    rounds: IntArray


def output_geometries(
    reads: Mapping[int, Reads], mini_batch: MiniBatch, layout: Layout
) -> dict[int, OutputRows]:
    """Rows of every output function that reads anything.

    reads: by id, the k-th below 0; see MiniBatch.output_ids.
    """
    if mini_batch.output_ids is None:
        read = {-1: reads[-1]} if -1 in reads and len(mini_batch.outputs) else {}
        return {k: _output_rows(one, mini_batch, layout, None) for k, one in read.items()}
    found = {}
    for k, of_function in reads.items():
        mine = np.flatnonzero(mini_batch.output_ids == -1 - k)
        if len(mine):
            found[k] = _output_rows(of_function, mini_batch, layout, mine)
    return found


def _output_rows(
    reads: Reads, mini_batch: MiniBatch, layout: Layout, mine: Index | None
) -> OutputRows:
    """In the order of the rows that are read, in which one round comes after the other.

    mine: which outputs the function reads; None: all.
    """
    outputs = mini_batch.outputs if mine is None else mini_batch.outputs[mine]
    index, by_row = _sort_by_row(layout.row[outputs], max(layout.n_rows))
    vertices, order = outputs[by_row], by_row if mine is None else mine[by_row]
    starts, rounds = _round_by_round(mini_batch.rounds, vertices)
    rows = TypeRows(vertices, starts, np.zeros(len(rounds), dtype=np.int32))
    gather = Gather(index, contiguous_runs(index, starts, 1), EMPTY)
    if mini_batch.output_pulls is None:
        pulls = {name: _pulled(mini_batch.pulls[name], vertices) for name in reads.pulls}
    else:
        own = mini_batch.output_pulls
        pulls = {name: _pulled(own[name], order) for name in reads.pulls}
    largest, _ = _sizes(starts, rows.first_row)
    geometry = TypeGeometry(rows, {(0,): gather}, pulls, largest, True, goes_back_at_once=True)
    return OutputRows(geometry, order, rounds)


def _round_by_round(rounds: IntArray | None, vertices: IntArray) -> tuple[IntArray, IntArray]:
    """Where the vertices of each round begin, and which rounds these are."""
    if rounds is None:
        return np.array([0, len(vertices)], dtype=np.int32), np.zeros(1, dtype=np.int32)
    mine = rounds[vertices]
    cuts = np.flatnonzero(mine[1:] != mine[:-1]) + 1
    starts = np.concatenate([[0], cuts, [len(vertices)]]).astype(np.int32)
    return starts, mine[starts[:-1]]


def space_of_type(states_of_type: Sequence[frozenset[str]]) -> list[int]:
    """Number the row spaces: types that write a common state share one (transitively)."""
    spaces: list[set[str]] = []
    for states in states_of_type:
        joined = set(states)
        for space in [space for space in spaces if space & states]:
            joined |= space
            spaces.remove(space)
        if joined:
            spaces.append(joined)
    nowhere = len(spaces)  # types that write no state are numbered apart
    return [
        next((k for k, space in enumerate(spaces) if space & states), nowhere)
        for states in states_of_type
    ]


def _plan_gather(graph: Graph, layout: Layout, rows: TypeRows, slots: Slots) -> Gather:
    if slots is None:
        return plan_gather_each(graph, layout, rows)
    return plan_gather(graph, layout, rows, slots)


def _pulled(values: IntArray, at: IntArray | Index) -> Index:
    return values[at].astype(np.int64)


@compiled
def _sort_by_row(wanted: IntArray, n_rows: int) -> tuple[Index, Index]:  # pragma: no cover
    """Sorted rows and where each stood, by counting; a row may be wanted more than once."""
    next_at = np.zeros(n_rows + 1, dtype=np.int64)
    for row in wanted:
        next_at[row + 1] += 1
    next_at = np.cumsum(next_at)
    index = np.empty(len(wanted), dtype=np.int64)
    by_row = np.empty(len(wanted), dtype=np.int64)
    for k in range(len(wanted)):
        at = next_at[wanted[k]]
        next_at[wanted[k]] += 1
        index[at], by_row[at] = wanted[k], k
    return index, by_row


@compiled
def _sizes(starts: IntArray, first_row: IntArray) -> tuple[int, bool]:  # pragma: no cover
    """Rows of the largest batch, and whether all batches follow one another."""
    largest, follow = 0, True
    for b in range(len(first_row)):
        largest = max(largest, starts[b + 1] - starts[b])
        if first_row[b] - starts[b] != first_row[0] - starts[0]:
            follow = False
    return largest, follow
