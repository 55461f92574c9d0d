"""ED-Batch's Fig. 1 as a graph whose types have names, and a state machine learned on it."""

from __future__ import annotations

import dataclasses
from typing import Any

from harness.contracts.policy import LearningSettings, learn_policy
from harness.policies.fsm.machine import StateMachine
from harness.values.graph import Graph
from tests.policies.test_policies import chain_with_outputs

NAMES = ("unbatchable", "I", "O", "R")


def figure() -> Graph:
    """ED-Batch's Fig. 1 with the names of its types."""
    return dataclasses.replace(chain_with_outputs(), type_names=NAMES)


def learn(**changes: Any) -> StateMachine:
    policy = learn_policy("fsm_sort", [figure()], LearningSettings(**changes), "chain, vertex")
    assert isinstance(policy, StateMachine)
    return policy
