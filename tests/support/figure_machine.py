"""ED-Batch's Fig. 1 as a graph whose types have names, and a state machine learned on it."""

from __future__ import annotations

import dataclasses
from typing import Any

from harness.contracts.policy import LearningSettings, learn_policy
from harness.policies.fsm.machine import StateMachine
from harness.values.graph import Graph
from tests.support.random_graphs import graph_of

NAMES = ("unbatchable", "I", "O", "R")
INTERNAL, OUTPUT, REDUCTION = 1, 2, 3


def chain_with_outputs(n_levels: int = 4) -> Graph:
    """ED-Batch, Fig. 1 and 2: a chain of I, one O on each, and R over all O."""
    types, args = [], []
    for level in range(n_levels):
        types += [INTERNAL, OUTPUT]
        args += [[2 * level - 2] if level else [], [2 * level]]
    return graph_of([*types, REDUCTION], [*args, list(range(1, 2 * n_levels, 2))])


def figure() -> Graph:
    """ED-Batch's Fig. 1 with the names of its types."""
    return dataclasses.replace(chain_with_outputs(), type_names=NAMES)


def learn(**changes: Any) -> StateMachine:
    policy = learn_policy("fsm_sort", [figure()], LearningSettings(**changes), "chain, vertex")
    assert isinstance(policy, StateMachine)
    return policy
