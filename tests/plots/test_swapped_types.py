"""Fig. 10 of ED-Batch: what a state machine cannot know costs batches, and is counted exactly."""

from __future__ import annotations

import pytest

from harness.planning.artifacts import Choices
from harness.policies.parts.bound import compute_lower_bound
from plots.experiment import load_experiment
from plots.tables.swapped_types import (
    IN_SEQUENCE,
    SIDE_BY_SIDE,
    build,
    build_graph,
    count_batches,
)
from tests.support.exact_minimum import minimum_batches

NAME = "edbatch_fig10"


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("name", [SIDE_BY_SIDE, IN_SEQUENCE])
def test_levels_of_chains_reach_the_minimum(name: str, depth: int) -> None:
    graph = build_graph(name, depth)
    assert graph.n_vertices == 4 * depth
    assert count_batches("critical_share", graph, 1) == minimum_batches(graph)


@pytest.mark.parametrize("policy", ["fsm_base", "fsm_max", "fsm_sort"])
def test_state_machines_need_more_when_the_phase_decides(policy: str) -> None:
    graph = build_graph(IN_SEQUENCE, 4)
    assert minimum_batches(graph) == compute_lower_bound(graph)
    assert count_batches(policy, graph, 2) > compute_lower_bound(graph)


def test_the_table_has_all_policies_and_the_bound(choices: Choices) -> None:
    (table,) = build(load_experiment(NAME, choices, (), ()))
    found = table.numbers.set_index(["graph", "length"])
    bound = found.pop("lower bound")
    assert (found.ge(bound, axis=0)).all(axis=None)
    assert found.critical_share[SIDE_BY_SIDE].tolist() == [2 * d + 1 for d in (2, 4, 8, 16, 32)]
    assert list(table.cells) == [
        *("depth", "agenda", "sufficient", "fsm base", "fsm max", "fsm sort"),
        *("critical share", "lower bound"),
    ]
