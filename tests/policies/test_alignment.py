"""Alignment: moving vertices keeps a schedule valid and empties batches.

test_critical_share.py compares the batches of any graph with a plain implementation.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.policies import agenda
from dynbatch.harness.policies.parts import alignment, ready
from dynbatch.harness.policies.parts.alignment import FEWER, MOVED, SAME
from dynbatch.harness.values.arrays import Ints
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.values.schedule import Schedule, check_schedule
from tests.support.random_graphs import graph_of, graphs


@compiled
def as_early(
    late: Ints, type_of: Ints, n_types: int, types: Ints, arg_start: Ints, args: Ints
) -> tuple[Ints, int]:
    return alignment.move_early(late, type_of, n_types, types, arg_start, args)


@compiled
def n_sources(
    one: Ints, other: Ints, n_batches: int, arg_start: Ints, args: Ints
) -> tuple[int, int]:
    return alignment.count_sources(one, other, n_batches, arg_start, args)


@compiled
def in_used_batches(batch_of: Ints, n_batches: int) -> tuple[Ints, Ints]:
    return ready.order_used_batches(batch_of, n_batches)


def _move_late(graph: Graph, type_of: np.ndarray) -> np.ndarray:
    """Return the latest batch of every vertex, if each type has batches enough."""
    batch_of = np.empty(graph.n_vertices, np.int32)
    last = np.full(graph.n_vertices, len(type_of))
    for v in range(graph.n_vertices - 1, -1, -1):
        batch_of[v] = max(b for b in np.flatnonzero(type_of == graph.types[v]) if b < last[v])
        for arg in graph.select_args(v):
            last[arg] = min(last[arg], batch_of[v])
    return batch_of


def _is_supersequence(graph: Graph, type_of: np.ndarray) -> bool:
    """Return True if all vertices find a batch of their type after their arguments' batches."""
    first = np.zeros(graph.n_vertices, int)
    for v in range(graph.n_vertices):
        behind = max((first[a] + 1 for a in graph.select_args(v)), default=0)
        places = np.flatnonzero(type_of[behind:] == graph.types[v])
        if not len(places):
            return False
        first[v] = behind + places[0]
    return True


def test_of_many_batches_nearly_all_pairs_count() -> None:
    n = 5000
    rng = np.random.default_rng(0)
    args = [sorted({int(a) for a in rng.integers(0, v, 4)}) if v else [] for v in range(n)]
    graph = graph_of([1] * n, args)
    alone = np.arange(n, dtype=np.int32)
    for found in n_sources(alone, alone[::-1].copy(), n, graph.arg_start, graph.args):
        assert 0.97 * len(graph.args) < found <= len(graph.args)


@settings(deadline=None, max_examples=200)
@given(graphs(max_vertices=15), st.data())
def test_early_removes_spare_batches_and_keeps_schedules_valid(
    graph: Graph, data: st.DataObject
) -> None:
    """Schedules with additional random batches: one that can be removed is, and all stay valid."""
    batchable = Graph(np.maximum(graph.types, 1), graph.arg_start, graph.args, graph.type_names)
    schedule = agenda.schedule(batchable)
    types = batchable.types[schedule.order[schedule.starts[:-1]]].tolist()
    present = sorted(set(types))
    for _ in range(data.draw(st.integers(0, 6))):
        types.insert(data.draw(st.integers(0, len(types))), data.draw(st.sampled_from(present)))
    type_of = np.array(types, np.int32)
    late = _move_late(batchable, type_of)
    arrays = batchable.types, batchable.arg_start, batchable.args
    early, change = as_early(late, type_of, batchable.n_types, *arrays)
    found = Schedule(*in_used_batches(early, len(type_of)))
    check_schedule(batchable, found)
    moved = MOVED if (early != late).any() else SAME
    assert change == (FEWER if found.n_batches < len(type_of) else moved)
    spare = any(_is_supersequence(batchable, np.delete(type_of, b)) for b in range(len(types)))
    assert (change == FEWER) == spare
