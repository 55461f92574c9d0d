"""Gradients through very many relus: rounding may move them, a fault may not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from harness.contracts.model import Model, ModelSizes
from harness.measuring import mini_batch_check
from harness.measuring.mini_batch_check import fingerprint_of, is_kinked, parts_fault
from harness.measuring.worker import run_settings
from harness.models.tree_fc import TreeFC
from harness.models.tree_lstm import TreeLSTM
from harness.records.fingerprint import KINK_TOLERANCE, TOLERANCE, Fingerprint, difference
from harness.trials.spec import TrialSpec
from harness.trials.workload import Workload, load_workload
from tests.support import saboteurs
from tests.support.drawn_trees import trees

SIZES = ModelSizes(8, {"words": 16, "classes": 2})


@pytest.mark.parametrize(
    ("model", "n_inputs"),
    [
        (TreeFC(SIZES, variant="fold"), 3 * 4 * 8),  # of inner vertices
        (TreeFC(SIZES, variant="cavs"), 3 * 9 * 8),  # and of leaves
        (TreeLSTM(SIZES), 0),
    ],
)
def test_inputs_of_relus_are_counted(
    model: Model, n_inputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances = trees(SIZES, [5, 5, 5])
    assert not is_kinked(model, instances)
    monkeypatch.setattr(mini_batch_check, "N_INPUTS", n_inputs)
    assert is_kinked(model, instances) == (n_inputs > 0)
    monkeypatch.setattr(mini_batch_check, "N_INPUTS", n_inputs + 1)
    assert not is_kinked(model, instances)


def off_by(part: float, name: str, *, kinked: bool) -> Fingerprint:
    sketches = {name: ((1.0, part),)}
    return Fingerprint(workload="w", losses=(1.0,), sketches=sketches, kinked=kinked)


@pytest.mark.parametrize(
    ("name", "kinked", "part", "differs"),
    [
        ("gradient of W", True, 0.9 * KINK_TOLERANCE, False),
        ("gradient of W", True, 1.1 * KINK_TOLERANCE, True),
        ("gradient of W", False, 2 * TOLERANCE, True),
        ("outputs", True, 2 * TOLERANCE, True),
    ],
)
def test_rounding_may_move_gradients_through_many_relus_alone(
    name: str, kinked: bool, part: float, differs: bool
) -> None:
    pair = off_by(part, name, kinked=kinked), off_by(0.0, name, kinked=False)
    assert (difference(*pair) is not None) == differs
    assert (difference(*pair[::-1]) is not None) == differs


def built(kind: str, spec: TrialSpec, workload: Workload) -> saboteurs.Honest:
    settings = run_settings(replace(spec, system_options={"of": "W"}))
    system: saboteurs.Honest = getattr(saboteurs, kind)(settings)
    system.prepare(workload.model, workload.weights)
    return system


@pytest.mark.parametrize("kind", ["SumsHalfAGradientOfMany", "TakesOneVertexOfManyForAnother"])
def test_a_fault_is_more_than_rounding(
    kind: str, make_spec: Callable[..., TrialSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mini_batch_check, "N_INPUTS", 1)
    options = {"n_leaves": 4, "n_instances": 32, "seed": 0}
    spec = make_spec(batch_size=16, dataset_options=options)
    workload = load_workload(spec)
    honest = fingerprint_of(built("Honest", spec, workload), workload, "w")
    assert honest.kinked
    assert difference(fingerprint_of(built(kind, spec, workload), workload, "w"), honest)
    faults = [
        parts_fault(built(one, spec, workload), workload.mini_batches[0], 4, kinked=True)
        for one in ("Honest", kind)
    ]
    assert faults[0] is None
    assert faults[1] is not None
