"""ED-Batch's learned policies: a choice for every state of the ready vertices' types.

fsm_base: a state is the set of types that have ready vertices. fsm_max: the set, and the most
frequent type. fsm_sort: the types in order of their numbers of ready vertices; its authors report
this encoding as ED-Batch.

Source: Chen et al., "ED-Batch: Efficient Automatic Batching of Dynamic Neural Networks via Learned
Finite State Machines", ICML 2023, Sec. 2.2 and 2.3, and its release, dynet/ooc-scheduler.cc.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dynbatch.harness.contracts.policy import LearningSettings
from dynbatch.harness.policies.fsm.learning import learn_machine
from dynbatch.harness.policies.fsm.machine import StateMachine, load_machine
from dynbatch.harness.values.graph import Graph


@dataclass(frozen=True, slots=True)
class Encoding:
    """Policy of one encoding of states."""

    name: str

    def learn(
        self, graphs: Sequence[Graph], settings: LearningSettings, workload: str = ""
    ) -> StateMachine:
        """Learn on graphs of one workload; `workload` describes its model and granularity."""
        return learn_machine(self.name, graphs, settings, workload)

    def load(self, file: Path, workload: str = "") -> StateMachine:
        """Read a saved machine.

        Raises:
            ConfigError: for a machine of another encoding or workload.
        """
        return load_machine(file, self.name, workload)


BASE, MAX, SORT = Encoding("base"), Encoding("max"), Encoding("sort")
LEARNED_POLICIES = {"fsm_base": "BASE", "fsm_max": "MAX", "fsm_sort": "SORT"}
