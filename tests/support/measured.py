"""A trial, measured by the worker in this process."""

from __future__ import annotations

import json
from pathlib import Path

from harness.measuring.worker import main
from harness.records.record import Record, read_record
from harness.trials.spec import TrialSpec


def measure(spec: TrialSpec, folder: Path) -> Record:
    """Run the worker's main in this process."""
    return measure_at(spec, folder / "r0.json")


def measure_at(spec: TrialSpec, path: Path) -> Record:
    """Run it, and have it leave its record at a place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    spec_path = path.with_name("spec.json")
    spec_path.write_text(json.dumps(spec.to_dict()))
    assert main([str(spec_path), str(path)]) == 0
    return read_record(path)
