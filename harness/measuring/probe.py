"""Process that finds out which trials the systems of an adapter support on this machine.

    python -m dynbatch.harness.measuring.probe SPECS.json ANSWERS.json

SPECS.json is a JSON list of specs. ANSWERS.json is written as a list with null for each supported
spec, or the reason why it is not supported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dynbatch.harness.contracts.system import load_adapter
from dynbatch.harness.errors import BenchError
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import build_model, build_run_settings


def find_skip_reason(values: dict[str, Any]) -> str | None:
    """Import a system's adapter and return its reason to skip a trial, or None."""
    spec = TrialSpec.from_dict(values)
    try:
        adapter = load_adapter(spec.adapter)
        return adapter.skip(build_model(spec, data_sizes={}), build_run_settings(spec))
    except BenchError as error:
        return " ".join(str(error).split())


def main(arguments: Sequence[str]) -> int:
    """Read specs from the first file and write the reasons to the second."""
    specs, answers = (Path(argument) for argument in arguments)
    reasons = [find_skip_reason(values) for values in json.loads(specs.read_text("utf-8"))]
    answers.write_text(json.dumps(reasons), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
