"""Random programs under every policy of the house, and every pair of switches: as interpreted."""

from __future__ import annotations

from dataclasses import fields
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

from harness.contracts.model import initial_weights
from harness.contracts.policy import policy_names
from harness.engine.switches import Switches
from harness.interpreter import interpret
from harness.programs.blocks import RecordingOptions
from harness.programs.model import recorded
from harness.values.schedule import check_schedule
from tests.support.engine_runs import prepared, run
from tests.support.learned import schedule_by
from tests.support.pairwise import pairwise_choices
from tests.support.scripted_programs import (
    Branches,
    Call,
    Choose,
    Loop,
    NextStage,
    Script,
    Scripted,
    ScriptedModel,
    instances,
)
from tests.support.switch_values import BOTH
from tests.support.switch_values import SWITCHES as COMPILED

RECORDING = {field.name: BOTH for field in fields(RecordingOptions)}
SWITCHES: dict[str, tuple[Any, ...]] = {**COMPILED, "backend": ("compiled", "stepwise")}
# Of other backends, or of what products are multiplied with: tests/engine.
OF_OTHERS = {"blas", "precision", "streaming", "persistent", "profile"}
SETTINGS: dict[str, tuple[Any, ...]] = {
    "policy": policy_names(),
    "threads": (1, 2),
    **SWITCHES,
    **{f"recording_{name}": values for name, values in RECORDING.items()},
}
CHOICES = pairwise_choices(SETTINGS)
WEIGHTS = initial_weights(ScriptedModel(), 3)
FEW = settings(
    deadline=None, max_examples=8, derandomize=True, suppress_health_check=list(HealthCheck)
)
# Forks inside loops and loops inside forks, decisions in all of them, and a stage: hypothesis
# begins with the shortest programs.
NESTED: Script = (
    Call("leaf", (), 1),
    Branches((
        (Call("binary", (0, 1), 2), Choose(0, 1, (0, 3))),
        (Loop(2, (Call("many", (0, 1, 2), 3), Choose(1, 2, (1, 2)))),),
    )),
    Call("project", (), 2),
    NextStage(),
    Loop(2, (Branches(((Call("unary_a", (0,), 1),), (Choose(3, 4, (2, 0)),))),)),
    Call("binary", (5, 2), 0),
)  # fmt: skip
PLAIN: Script = (
    Loop(3, (Call("binary", (0, 1), 0), Branches(((Call("unary_b", (1,), 1),), ())))),
    Call("many", (1, 2, 3), 4),
)
BATCH = [Scripted(NESTED, 0), Scripted(PLAIN, 1), Scripted(NESTED, 2), Scripted((), 3)]


def test_every_switch_and_every_pair_is_there() -> None:
    assert {field.name for field in fields(Switches)} == {*SWITCHES, *OF_OTHERS}
    for a, b in combinations(SETTINGS, 2):
        seen = {(one[a], one[b]) for one in CHOICES}
        assert seen == set(product(SETTINGS[a], SETTINGS[b]))
    assert len(CHOICES) < 100, "pairs, and not everything with everything"


@pytest.mark.parametrize("place", range(len(CHOICES)))
@FEW
@example(BATCH)
@given(instances())
def test_the_engine_computes_what_programs_do(place: int, batch: list[Scripted]) -> None:
    chosen = dict(CHOICES[place])
    how = RecordingOptions(**{name: chosen.pop(f"recording_{name}") for name in RECORDING})
    policy, threads = chosen.pop("policy"), chosen.pop("threads")
    model = recorded(ScriptedModel(), how)
    truth = interpret(model, WEIGHTS, batch)
    switches = Switches(**chosen)
    adapter = prepared(model, WEIGHTS, switches, policy, mode="infer", threads=threads)
    if adapter.learns:
        adapter.learn(batch)
    found = run(adapter, batch)  # which proves the schedule
    np.testing.assert_allclose(found.outputs, truth.outputs, rtol=1e-4, atol=1e-5)
    assert found.loss == pytest.approx(truth.loss, rel=1e-4)


@pytest.mark.parametrize("policy", policy_names())
@FEW
@example(BATCH)
@given(instances())
def test_every_policy_schedules_what_is_recorded(policy: str, batch: list[Scripted]) -> None:
    for how in (RecordingOptions(), RecordingOptions(False, False, False, False)):
        graph = recorded(ScriptedModel(), how).mini_batch(batch).graph
        check_schedule(graph, schedule_by(policy, graph))
