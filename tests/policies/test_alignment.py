"""Early or late: moving vertices to earlier batches keeps a schedule valid, and copies fewer."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from harness.policies import critical_share
from harness.policies.parts.alignment import align, as_early, n_sources
from harness.policies.parts.ready import in_batches
from harness.values.graph import UNBATCHABLE, Graph
from harness.values.schedule import Schedule, check_schedule
from tests.support.random_graphs import graph_of, graphs


def _batch_of(schedule: Schedule, graph: Graph) -> np.ndarray:
    found = np.empty(graph.n_vertices, np.int32)
    for b, (start, end) in enumerate(zip(schedule.starts, schedule.starts[1:], strict=False)):
        found[schedule.order[start:end]] = b
    return found


@settings(deadline=None)  # the first call compiles
@given(graphs())
def test_early_vertices_make_a_valid_schedule_of_no_more_batches(graph: Graph) -> None:
    plain = Graph(graph.types, graph.arg_start, graph.args, graph.type_names)
    late = critical_share.schedule(plain)
    batch_of = _batch_of(late, plain)
    arrays = plain.types, plain.arg_start, plain.args
    early, n_batches = as_early(batch_of, late.n_batches, *arrays)
    assert n_batches <= late.n_batches
    check_schedule(plain, Schedule(*in_batches(early, n_batches)))


@settings(deadline=None)  # the first call compiles
@given(graphs())
def test_no_vertex_of_one_type_could_come_earlier(graph: Graph) -> None:
    plain = Graph(graph.types, graph.arg_start, graph.args, graph.type_names)
    late = critical_share.schedule(plain)
    arrays = plain.types, plain.arg_start, plain.args
    early, n_batches = as_early(_batch_of(late, plain), late.n_batches, *arrays)
    type_of = {int(b): int(plain.types[v]) for v, b in enumerate(early)}
    for v, b in enumerate(early.tolist()):
        behind = max((int(early[a]) for a in plain.args_of(v)), default=-1)
        if plain.types[v] != UNBATCHABLE:
            assert all(type_of[k] != plain.types[v] for k in range(behind + 1, b))
    assert set(type_of) == set(range(n_batches))


def _chains(lengths: tuple[int, ...]) -> Graph:
    """A first vertex and steps, one chain after the other."""
    types, args = [], []
    for length in lengths:
        types += [1] + [2] * (length - 1)
        args += [[]] + [[len(args) + k] for k in range(length - 1)]
    return graph_of(types, args)


def test_sentences_begin_together_so_that_each_step_reads_the_one_before() -> None:
    graph = _chains((5, 2, 4))
    schedule = critical_share.schedule(graph)
    sizes = np.diff(schedule.starts).tolist()
    assert sizes == [3, 3, 2, 2, 1]
    late = np.array([0, 1, 2, 3, 4, 0, 4, 0, 2, 3, 4], np.int32)  # all end together
    arrays = graph.arg_start, graph.args
    assert n_sources(late, *in_batches(late, 5), *arrays) == 6
    assert n_sources(_batch_of(schedule, graph), schedule.order, schedule.starts, *arrays) == 4
    chosen = align(late, 5, graph.types, *arrays)
    assert np.diff(chosen[1]).tolist() == sizes


def test_children_stay_beside_each_other_where_that_reads_fewer_batches() -> None:
    # Two leaves and an inner vertex on a third leaf and it: late, the leaves are one batch.
    graph = graph_of([1, 1, 2, 1, 1, 2, 2, 2], [[], [], [0, 1], [], [], [3, 4], [2, 5], [6, 5]])
    schedule = critical_share.schedule(graph)
    arrays = graph.arg_start, graph.args
    batch_of = _batch_of(schedule, graph)
    early, n_early = as_early(batch_of, schedule.n_batches, graph.types, *arrays)
    mine = n_sources(batch_of, schedule.order, schedule.starts, *arrays)
    assert mine <= n_sources(early, *in_batches(early, n_early), *arrays)
