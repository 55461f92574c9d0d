"""A trial, measured by the worker in this process."""

from __future__ import annotations

import json
from pathlib import Path

from harness.measuring.worker import main
from harness.records.record import Record, read_record
from harness.trials.spec import TrialSpec


def measure(spec: TrialSpec, folder: Path) -> Record:
    """Run the worker's main in this process."""
    (folder / "spec.json").write_text(json.dumps(spec.to_dict()))
    assert main([str(folder / "spec.json"), str(folder / "r0.json")]) == 0
    return read_record(folder / "r0.json")
