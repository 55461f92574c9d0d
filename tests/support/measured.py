"""A trial measured by the worker in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from harness.measuring.worker import main
from harness.records.record import Record, read_record
from harness.trials.spec import Timing, TrialSpec


def measure(spec: TrialSpec, folder: Path) -> Record:
    """Run the worker's main function in this process."""
    return measure_at(spec, folder / "r0.json")


def measure_at(spec: TrialSpec, path: Path) -> Record:
    """Run the worker, with its record at a given path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    spec_path = path.with_name("spec.json")
    spec_path.write_text(json.dumps(spec.to_dict()))
    assert main([str(spec_path), str(path)]) == 0
    return read_record(path)


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
