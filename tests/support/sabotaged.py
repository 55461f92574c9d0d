"""Trials of the saboteurs: small trees in mini-batches of six, of which the oracle gets a few."""

from __future__ import annotations

from collections.abc import Callable

from harness.trials.spec import Timing, TrialSpec

MakeSpec = Callable[..., TrialSpec]
SABOTEURS = "tests.support.saboteurs"


def spec_of(make_spec: MakeSpec, kind: str, of: str = "W", mode: str = "train") -> TrialSpec:
    return make_spec(
        system=kind,
        adapter=SABOTEURS,
        system_options={"sabotage": kind, "of": of},
        model="tree_lstm",
        model_module="harness.models.tree_lstm",
        batch_size=6,
        dataset_options={"n_leaves": 4, "n_instances": 24, "seed": 0},
        timing=Timing(min_seconds=0.0, n_mini_batches=2, min_passes=2),
        mode=mode,
    )
