"""E_base: learned choices by the set of types that have ready vertices.

Source: Chen et al., "ED-Batch: Efficient Automatic Batching of Dynamic Neural Networks via Learned
Finite State Machines", ICML 2023, Sec. 2.2 and 2.3, and its release, dynet/ooc-scheduler.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.contracts.policy import LearningSettings
from harness.policies.fsm.file import load_machine
from harness.policies.fsm.learning import learn_machine
from harness.policies.fsm.machine import StateMachine
from harness.values.graph import Graph

ENCODING = "base"


def learn(graphs: Sequence[Graph], settings: LearningSettings, workload: str = "") -> StateMachine:
    """Learn on graphs of one workload (model and granularity, in words)."""
    return learn_machine(ENCODING, graphs, settings, workload)


def load(file: Path, workload: str = "") -> StateMachine:
    """Read a saved machine of this encoding; raises ConfigError for any other."""
    return load_machine(file, ENCODING, workload)
