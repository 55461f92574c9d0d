"""Cost of a batch of each type, measured by running schedules whose batches are cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.policies import agenda
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.values.schedule import Schedule, check_schedule
from dynbatch.systems.on_core.laboratory import PIECES, count_batches_by_type, cut, measure_costs
from tests.support.policies import batches
from tests.support.random_graphs import graph_of, graphs


@settings(deadline=None)  # the first example compiles a policy
@given(graphs(), st.data())
def test_a_schedule_that_is_cut_is_still_one(graph: Graph, data: st.DataObject) -> None:
    schedule = agenda.schedule(graph)
    types = data.draw(st.sets(st.integers(0, graph.n_types - 1)))
    pieces = cut(graph, schedule, types)
    if (graph.follows < 0).all():  # otherwise a follower comes only after the last piece
        check_schedule(graph, pieces)
    assert (pieces.order == schedule.order).all()
    before, after = count_batches_by_type(graph, schedule), count_batches_by_type(graph, pieces)
    sizes = {t: 0 for t in range(graph.n_types)}
    for batch in batches(schedule):
        sizes[int(graph.types[batch[0]])] += min(PIECES, len(batch))
    for t in range(graph.n_types):
        assert after[t] == (sizes[t] if t in types else before[t])


def test_segments_are_cut_with_their_batches() -> None:
    graph = graph_of(types=[1, 1, 1, 2, 2], args=[[], [], [], [0], [1]])
    graph = replace(graph, segments=np.array([0, 0, 0, 1, 1]))
    schedule = Schedule(np.arange(5), np.array([0, 3, 5]), np.array([0, 1, 2]))
    pieces = cut(graph, schedule, [1])
    check_schedule(graph, pieces)
    assert pieces.starts.tolist() == [0, 1, 2, 3, 5]
    assert pieces.segment_starts.tolist() == [0, 3, 4]


def linear(graph: Graph, fixed_s: float, cost_s: Mapping[int, float]) -> Callable[..., float]:
    def time(schedule: Schedule) -> float:
        found = count_batches_by_type(graph, schedule)
        return fixed_s + sum(n * cost_s[t] for t, n in found.items())

    return time


def test_costs_of_batches_are_found_where_they_add_up() -> None:
    graph = graph_of(types=[1] * 8 + [2] * 4 + [3], args=[[]] * 13)
    schedule = Schedule(np.arange(13), np.array([0, 8, 12, 13]))
    cost_s = {0: 0.0, 1: 0.003, 2: 0.001, 3: 0.002}
    fixed_s, found = measure_costs(graph, schedule, linear(graph, 0.5, cost_s))
    assert found[1] == pytest.approx(0.003)
    assert found[2] == pytest.approx(0.001)
    assert found[3] == pytest.approx(0.002)  # cannot be cut: the mean of the others
    assert fixed_s == pytest.approx(0.5)


def test_a_batch_never_costs_less_than_nothing() -> None:
    graph = graph_of(types=[1] * 4, args=[[]] * 4)
    schedule = Schedule(np.arange(4), np.array([0, 4]))
    fixed_s, found = measure_costs(graph, schedule, linear(graph, 0.5, {1: -0.001}))
    assert (fixed_s, found[1]) == (pytest.approx(0.499), 0.0)
