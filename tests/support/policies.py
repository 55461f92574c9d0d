"""Policies on one graph, learned or not, their results, and ED-Batch's first figure."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

from dynbatch.harness.contracts.policy import (
    LearningSettings,
    is_learned,
    learn_policy,
    load_policy,
)
from dynbatch.harness.policies.fsm.machine import StateMachine
from dynbatch.harness.policies.parts.segments import schedule_in_segments, select_first_segment
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.values.schedule import Schedule
from tests.support.random_graphs import graph_of

NAMES = ("unbatchable", "I", "O", "R")
INTERNAL, OUTPUT, REDUCTION = 1, 2, 3


def chain_with_outputs(n_levels: int = 4) -> Graph:
    """Build ED-Batch's Fig. 1 and 2: a chain of I, one O on each, and R over all O."""
    types, args = [], []
    for level in range(n_levels):
        types += [INTERNAL, OUTPUT]
        args += [[2 * level - 2] if level else [], [2 * level]]
    return graph_of([*types, REDUCTION], [*args, list(range(1, 2 * n_levels, 2))])


def figure() -> Graph:
    """Build ED-Batch's Fig. 1 with the names of its types."""
    return dataclasses.replace(chain_with_outputs(), type_names=NAMES)


def learn(**changes: Any) -> StateMachine:
    policy = learn_policy("fsm_sort", [figure()], LearningSettings(**changes), "chain, vertex")
    assert isinstance(policy, StateMachine)
    return policy


FEW = LearningSettings(trials=3)


def schedule_by(name: str, graph: Graph) -> Schedule:
    """Schedule a graph, segment by segment if it has several; policies learn on the first one."""
    if is_learned(name):
        return schedule_in_segments(learn_policy(name, [select_first_segment(graph)], FEW), graph)
    return schedule_in_segments(load_policy(name), graph)


def types_in_order(graph: Graph, schedule: Schedule) -> list[int]:
    """Return the type of each batch."""
    return graph.types[schedule.order[schedule.starts[:-1]]].tolist()


def batches(schedule: Schedule) -> list[list[int]]:
    """Return the vertices of each batch."""
    return [schedule.order[start:end].tolist() for start, end in pairwise(schedule.starts)]
