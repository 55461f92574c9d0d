"""Layout in plain Python, array by array, to compare with the single compiled call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.engine.lowering.plan import Slots
from dynbatch.harness.engine.rows.fields import (
    NOT_CONTIGUOUS,
    OUTPUT,
    Gather,
    Index,
    Reads,
    TypeGeometry,
)
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.schedule import Schedule
from tests.support.policies import batches as batches_of


@dataclass(frozen=True)
class PlainLayout:
    batches: list[tuple[int, int]]  # type id, position
    row: list[int]  # of every vertex
    n_rows: list[int]  # of every space
    types: dict[int, TypeGeometry]
    at_once: dict[int, int]  # most rows of each type in one call
    order: list[int]  # index of the output in each row
    segments: list[int]  # graph segment of each batch of outputs


def plain_layout(
    mini_batch: MiniBatch,
    schedule: Schedule,
    reads: dict[int, Reads],
    spaces: Sequence[int],
    *,
    reorder: bool,
) -> PlainLayout:
    """Compute the layout of dynbatch.harness.engine.rows.layout.plan_layout."""
    batches = batches_of(schedule)
    if reorder:
        batches = in_reading_order(mini_batch, batches)
    functions = mini_batch.functions.tolist()
    row, used = [0] * len(functions), [0] * (max(spaces) + 1)
    pairs, of_type = list[tuple[int, int]](), dict[int, list[list[int]]]()
    for batch in batches:
        mine = of_type.setdefault(functions[batch[0]], [])
        pairs.append((functions[batch[0]], len(mine)))
        mine.append(batch)
        for vertex in batch:
            space = spaces[functions[vertex]]
            row[vertex] = used[space]
            used[space] += 1
    types = {
        t: geometry(mini_batch, row, mine, reads[t])
        for t, mine in sorted(of_type.items())
        if t in reads
    }
    at_once = {t: max(map(len, of_type[t])) for t in types}
    order, segments = list[int](), list[int]()
    if OUTPUT in reads and len(mini_batch.outputs):
        outputs = range(len(mini_batch.outputs))
        order = sorted(outputs, key=lambda k: row[mini_batch.outputs[k]])
        types[OUTPUT], segments = output_geometry(mini_batch, row, order, reads[OUTPUT])
        at_once[OUTPUT] = len(order)
    return PlainLayout(pairs, row, used, types, at_once, order, segments)


def in_reading_order(mini_batch: MiniBatch, batches: list[list[int]]) -> list[list[int]]:
    """Sort each batch by the position and slot of its first reader in the same segment."""
    graph, segments = mini_batch.graph, mini_batch.segments
    read_at, found = dict[int, tuple[int, int]](), list[list[int]]()
    for at, batch in enumerate(reversed(batches)):
        unread = len(batches) * graph.n_vertices * 10, 0
        settled = sorted(batch, key=lambda vertex: read_at.get(vertex, unread))
        found.append(settled)
        for position, vertex in enumerate(settled):
            for slot, child in enumerate(graph.select_args(vertex).tolist()):
                if segments is not None and segments[child] != segments[vertex]:
                    continue
                place = (-at, position * 1000 + slot)
                read_at[child] = min(read_at.get(child, place), place)
    return found[::-1]


def geometry(
    mini_batch: MiniBatch, row: list[int], batches: list[list[int]], reads: Reads
) -> TypeGeometry:
    vertices = [vertex for batch in batches for vertex in batch]
    starts = np.cumsum([0, *map(len, batches)])
    first_row = [row[batch[0]] for batch in batches]
    follows = [first - start for first, start in zip(first_row, starts, strict=False)]
    return TypeGeometry(
        _index(vertices),
        starts,
        _index(first_row),
        {slots: gather(mini_batch, row, vertices, starts, slots) for slots in reads.slots},
        {name: mini_batch.pulls[name][vertices].astype(np.int64) for name in reads.pulls},
        len(set(follows)) == 1,
    )


def gather(
    mini_batch: MiniBatch, row: list[int], vertices: list[int], starts: Index, slots: Slots
) -> Gather:
    """Return the rows that vertices read through these slots, or from all children."""
    children = [mini_batch.graph.select_args(vertex).tolist() for vertex in vertices]
    if slots is None:
        edge_start = np.cumsum([0, *map(len, children)])
        index = _index([row[child] for own in children for child in own])
        return Gather(index, runs_of(index, edge_start[starts]), edge_start)
    index = _index([row[own[slot]] for own in children for slot in slots])
    return Gather(index, runs_of(index, starts * len(slots)), _index([]))


def runs_of(index: Index, bounds: NDArray[np.integer]) -> Index:
    """Return the runs of an index, see Gather.runs."""
    ends = list(pairwise(bounds.tolist()))
    found = []
    for begin, end in [*ends, (0, len(index))]:
        part = index[begin:end]
        is_run = bool((part == (part[0] if len(part) else 0) + np.arange(len(part))).all())
        found.append((int(part[0]) if len(part) else 0) if is_run else NOT_CONTIGUOUS)
    return _index(found)


def output_geometry(
    mini_batch: MiniBatch, row: list[int], own: list[int], reads: Reads
) -> tuple[TypeGeometry, list[int]]:
    """Return the geometry of the outputs in the order of rows, with one batch per segment."""
    vertices = mini_batch.outputs[own].tolist()
    segments = [0 if mini_batch.segments is None else int(mini_batch.segments[v]) for v in vertices]
    first = [k for k in range(len(own)) if k == 0 or segments[k] != segments[k - 1]]
    starts = _index([*first, len(own)])
    index = _index([row[vertex] for vertex in vertices])
    pulls = {
        name: mini_batch.pulls[name][vertices]
        if mini_batch.output_pulls is None
        else mini_batch.output_pulls[name][own]
        for name in reads.pulls
    }
    found = TypeGeometry(
        _index(vertices),
        starts,
        _index([0] * len(first)),
        {(0,): Gather(index, runs_of(index, starts), _index([]))},
        pulls,
        True,
    )
    return found, [segments[k] for k in first]


def _index(values: Sequence[int]) -> Index:
    return np.array(values, dtype=np.int64)
