"""Process that finds out which trials the systems of an adapter support on this machine.

    python -m dynbatch.harness.measuring.probe SPECS.json ANSWERS.json

SPECS.json is a JSON list of specs. ANSWERS.json is written as a list with a pair for each spec: the
reason why it is not supported, or null; and whether this is certain. `check_systems` starts this
process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynbatch.harness.contracts.system import load_adapter
from dynbatch.harness.errors import BenchError, UnsupportedTrial
from dynbatch.harness.machine.folders import make_temporary_folder
from dynbatch.harness.measuring.processes.child_output import read_last_line
from dynbatch.harness.measuring.processes.launch import (
    build_worker_environment,
    describe_missing_package,
    explain_unstartable,
    find_interpreter,
    find_interpreter_fault,
)
from dynbatch.harness.measuring.processes.supervise import Ending, explain_death, supervise_child
from dynbatch.harness.planning.locks import hold_used_gpu
from dynbatch.harness.trials.spec import Limits, TrialSpec
from dynbatch.harness.trials.workload import build_model, build_run_settings

PROBE = "dynbatch.harness.measuring.probe"
PROBE_LIMITS = Limits(time_s=120.0)


@dataclass(frozen=True, slots=True)
class Availability:
    """Availability of a system on a device.

    Attributes:
        reason: None if it runs.
        is_certain: False if its process failed, or if the trial is wrong instead of unsupported.
    """

    system: str
    device: str
    reason: str | None
    is_certain: bool = True


def group_by_adapter(specs: Iterable[TrialSpec]) -> list[list[TrialSpec]]:
    groups: dict[tuple[str, str], list[TrialSpec]] = {}
    for spec in specs:
        groups.setdefault((spec.adapter, find_interpreter(spec)), []).append(spec)
    return list(groups.values())


def explain_unsupported(
    specs: Iterable[TrialSpec], results_dir: Path, notify: Callable[[str], object]
) -> dict[str, str]:
    """Return why this machine cannot run trials, by trial_id, with one process per adapter.

    A trial without a certain reason is left out, because its own process gives the reason.

    Args:
        results_dir: results directory of the trials.
        notify: called with a line before waiting for a GPU on which another run measures.
    """
    groups, reasons = group_by_adapter(specs), {}
    devices = {spec.device for alike in groups for spec in alike}
    with hold_used_gpu(devices, results_dir, "the planning of a run", notify):
        answers = [check_systems(alike) for alike in groups]
    for alike, of_these in zip(groups, answers, strict=True):
        for spec, answer in zip(alike, of_these, strict=True):
            if answer.reason is not None and answer.is_certain:
                reasons[spec.trial_id] = answer.reason
    return reasons


def check_systems(specs: Sequence[TrialSpec]) -> list[Availability]:
    """Check the systems of one adapter in a new process."""
    first = specs[0]
    reason = explain_unstartable(first)
    if reason is not None:
        return [Availability(spec.system, spec.device, reason) for spec in specs]
    with make_temporary_folder() as folder:
        asked, answered, log = (folder / name for name in ("specs", "answers", "log"))
        asked.write_text(json.dumps([spec.to_dict() for spec in specs]), encoding="utf-8")
        probe = (PROBE, str(asked), str(answered))
        environment = build_worker_environment(first)
        ending = supervise_child(find_interpreter(first), probe, environment, PROBE_LIMITS, log)
        if ending.returncode != 0 or not answered.exists():
            reason = _explain_failure(first, ending, read_last_line(log))
            return [Availability(s.system, s.device, reason, is_certain=False) for s in specs]
        answers = json.loads(answered.read_text(encoding="utf-8"))
    return [Availability(s.system, s.device, *a) for s, a in zip(specs, answers, strict=True)]


def _explain_failure(spec: TrialSpec, ending: Ending, last_words: str) -> str:
    if ending.status == "timeout":
        return f"import timed out after {PROBE_LIMITS.time_s:g} s"
    if ending.returncode is None or ending.reason is not None:
        return f"import failed: {ending.reason}"
    reason = explain_death(ending.returncode, last_words)
    lacks = describe_missing_package(spec, last_words) or find_interpreter_fault(spec, reason)
    return lacks or f"import failed: {reason}"


def find_skip_reason(values: dict[str, Any]) -> tuple[str | None, bool]:
    """Import a system's adapter; return its reason to skip a trial or None, and its certainty."""
    spec = TrialSpec.from_dict(values)
    try:
        adapter = load_adapter(spec.adapter)
        return adapter.skip(build_model(spec, data_sizes={}), build_run_settings(spec)), True
    except BenchError as error:
        return " ".join(str(error).split()), isinstance(error, UnsupportedTrial)


def main(arguments: Sequence[str]) -> int:
    """Read specs from the first file and write the reasons to the second."""
    specs, answers = (Path(argument) for argument in arguments)
    reasons = [find_skip_reason(values) for values in json.loads(specs.read_text("utf-8"))]
    answers.write_text(json.dumps(reasons), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
