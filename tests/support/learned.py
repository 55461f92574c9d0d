"""Any policy on one graph, whether it has to be learned there first or not."""

from __future__ import annotations

from harness.contracts.policy import LearningSettings, is_learned, learn_policy, load_policy
from harness.policies.fsm.learning import learn_machine
from harness.policies.fsm.machine import StateMachine
from harness.policies.parts.rounds import first_round, schedule_in_rounds
from harness.values.graph import Graph
from harness.values.schedule import Schedule

FEW = LearningSettings(trials=3)


def schedule_by(name: str, graph: Graph, settings: LearningSettings = FEW) -> Schedule:
    """Schedule a graph, in rounds where it has some, learning on what is seen first."""
    if is_learned(name):
        return schedule_in_rounds(learn_policy(name, [first_round(graph)], settings), graph)
    return schedule_in_rounds(load_policy(name), graph)


def learn_by(encoding: str, graph: Graph, **changes: object) -> StateMachine:
    """Learn a state machine on one graph; `changes` are of LearningSettings."""
    return learn_machine(encoding, [graph], LearningSettings(**changes), "")  # type: ignore[arg-type]
