"""Batches of several vertex functions: launched once per function, and counted once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.engine.rows.launches import split_into_launches
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.reference import run_reference
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.schedule import Schedule
from tests.support.engine_models import example
from tests.support.engine_runs import disagreements, prepared, run
from tests.support.policies import batches as batches_of
from tests.support.random_graphs import graph_of

# Batches as lists of the functions of their vertices.
BATCHES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), max_size=8)
NOTHING = as_int_array([])


def mini_batch_of(batches: list[list[int]], seed: int) -> tuple[MiniBatch, Schedule]:
    """Return vertices in a random order, and a schedule of these batches, in two segments."""
    n = sum(map(len, batches))
    order = np.random.default_rng(seed).permutation(n).astype(np.int32)
    starts = np.cumsum([0, *map(len, batches)])
    functions = np.empty(n, dtype=np.int32)
    functions[order] = [function for batch in batches for function in batch]
    graph = graph_of([1] * n, [[]] * n, n_types=2)
    schedule = Schedule(order, starts, as_int_array([0, len(batches) // 2, len(batches)]))
    return MiniBatch(graph, {}, NOTHING, 1, functions), schedule


@given(BATCHES, st.integers(0, 9))
@settings(deadline=None)
def test_launches_are_the_batches_by_function(batches: list[list[int]], seed: int) -> None:
    mini_batch, schedule = mini_batch_of(batches, seed)
    launches = split_into_launches(mini_batch, schedule)
    expected, firsts = [], [0]
    for members in batches_of(schedule):
        functions = list(dict.fromkeys(mini_batch.functions[members].tolist()))
        expected += [[v for v in members if mini_batch.functions[v] == f] for f in functions]
        firsts.append(len(expected))
    assert batches_of(launches) == expected
    assert launches.segment_starts.tolist() == [firsts[b] for b in schedule.segment_starts]


def test_a_schedule_of_one_function_per_batch_stays_the_same() -> None:
    mini_batch, schedule = mini_batch_of([[1, 1], [2], [1]], seed=0)
    assert split_into_launches(mini_batch, schedule) is schedule
    plain = MiniBatch(mini_batch.graph, {}, NOTHING, 1)
    assert split_into_launches(plain, schedule) is schedule


POLICIES = ("agenda", "depth", "critical_share", "fsm_sort")
BACKENDS = ("compiled", "stepwise") * 2  # which policy made the batches is unknown to a backend


@pytest.mark.parametrize(("policy", "backend"), list(zip(POLICIES, BACKENDS, strict=True)))
@pytest.mark.parametrize("name", ["bilstm_char", "matrices"])
def test_batches_of_several_shapes_are_right_and_counted_once(
    name: str, policy: str, backend: str
) -> None:
    model, instances, weights = example(name)
    switches = Switches(granularity="operator", backend=backend)
    adapter = prepared(model, weights, switches, policy)
    if adapter.learns:
        adapter.learn(instances)
    result = run(adapter, instances)  # which checks the schedule
    assert disagreements(result, run_reference(model, weights, instances, "train")) == []
    n_launches = len(adapter.engine.laid_out.layout.batches)
    assert result.counters.n_batches == adapter.schedule.n_batches < n_launches
    assert result.counters.lower_bound <= result.counters.n_batches
