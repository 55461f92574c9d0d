"""`bench-doctor`: systems that run on this machine, and reasons for those that do not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from dynbatch.harness.commands import doctor
from dynbatch.harness.machine.facts import describe_machine
from dynbatch.harness.machine.noise import Finding
from dynbatch.harness.measuring import probe
from dynbatch.harness.measuring.probe import Availability, explain_unsupported
from dynbatch.harness.measuring.processes.launch import find_interpreter
from dynbatch.harness.planning import locks
from dynbatch.harness.planning.locks import hold_used_gpu
from dynbatch.harness.trials.spec import TrialSpec
from tests.support.measured import MakeSpec

Patch = pytest.MonkeyPatch
Output = pytest.CaptureFixture[str]

FLOOD_AND_DIE = """\
import os
import signal

os.write(1, b"x" * 2**22)
os.kill(os.getpid(), signal.SIGRTMIN + 6)
"""


def test_doctor_reports_runnable_systems_and_failure_reasons(
    make_spec: MakeSpec, make_module: Callable[[str], str], capsys: Output, monkeypatch: Patch
) -> None:
    good = make_spec(system="good", system_options={"fault": "null"})
    skipping = make_spec(system="skipping", system_options={"fault": "skip"})
    adapter = make_module("import a_framework_that_is_not_installed")
    missing = make_spec(system="missing", adapter=adapter)
    broken = make_spec(system="broken", adapter="tests.conftest_that_is_not_there")
    groups = ([good, skipping], [missing], [broken])
    answers = [answer for group in groups for answer in doctor.check_systems(group)]
    reasons = {answer.system: answer.reason for answer in answers}
    assert reasons["good"] is None
    assert reasons["skipping"] == "not on this machine"
    assert "a_framework_that_is_not_installed is not installed" in str(reasons["missing"])
    assert "is not a module" in str(reasons["broken"])
    monkeypatch.setattr(doctor, "check_all_systems", lambda: answers)
    monkeypatch.setattr(doctor, "measure_against_itself", lambda: [1.0, 1.002])
    assert doctor.main([]) == 0
    text = capsys.readouterr().out
    assert "good      cpu   runs" in text
    assert "skipping  cpu   no: not on this machine" in text
    assert doctor.main(["--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert set(content) == {"machine", "matmuls", "systems", "disturbance", "quiet"}


@pytest.mark.slow
def test_every_system_is_checked_with_a_supported_model(monkeypatch: Patch) -> None:
    """All adapters of a framework share one process, because its import takes a second or more."""
    asked: dict[tuple[str, str], list[TrialSpec]] = {}

    def note(specs: Sequence[TrialSpec]) -> list[doctor.Availability]:
        for spec in specs:
            framework = spec.adapter.split(".")[2]  # dynbatch.systems.on_torch.eager
            asked.setdefault((framework, find_interpreter(spec)), []).append(spec)
        return []

    with monkeypatch.context() as patch:
        patch.setattr(doctor, "check_systems", note)
        doctor.check_all_systems()
    answers = [answer for specs in asked.values() for answer in doctor.check_systems(specs)]
    reasons = {answer.system: answer.reason for answer in answers}
    assert {"torch_rnn", "subgraph_pq", "vertex"} <= set(reasons)
    printed = [reason for reason in reasons.values() if reason and "model" in reason]
    assert printed == []


def test_only_certain_reasons_spare_a_process(
    make_spec: MakeSpec, make_module: Callable[[str], str], tmp_path: Path
) -> None:
    """A trial whose adapter crashes, or that is wrong, gives its reason itself."""
    specs = {
        "good": make_spec(system_options={"fault": "null"}),
        "skipping": make_spec(system_options={"fault": "skip"}),
        "missing": make_spec(system="elsewhere", adapter="x", python="/no/python"),
        "crashing": make_spec(adapter=make_module("raise RuntimeError('broken')")),
        "wrong": make_spec(adapter="tests.conftest_that_is_not_there"),
    }
    reasons = explain_unsupported(specs.values(), tmp_path, print)
    found = {name: reasons.get(spec.trial_id) for name, spec in specs.items()}
    assert found["skipping"] == "not on this machine"
    assert str(found["missing"]).startswith("system.python=/no/python does not start")
    assert found["good"] == found["crashing"] == found["wrong"] is None


def test_planning_holds_the_gpu(make_spec: MakeSpec, tmp_path: Path, monkeypatch: Patch) -> None:
    """The check may run a kernel, so no other run measures on the GPU meanwhile."""
    monkeypatch.setattr(locks, "find_used_gpu", lambda: "A GPU, GPU-1")
    asked: list[tuple[str, bool]] = []

    def check(specs: Sequence[TrialSpec]) -> list[Availability]:
        asked.append((specs[0].device, True))
        with suppress(WaitError), hold_used_gpu({"cuda"}, tmp_path, "a run", stop_waiting):
            asked[-1] = (specs[0].device, False)
        return [Availability(spec.system, spec.device, None) for spec in specs]

    def stop_waiting(_: str) -> None:
        raise WaitError

    monkeypatch.setattr(probe, "check_systems", check)
    for device in ("cuda", "cpu"):
        assert explain_unsupported([make_spec(device=device)], tmp_path, print) == {}
    assert asked == [("cuda", True), ("cpu", False)]


class WaitError(Exception):
    """A lock that another process holds was about to be waited for."""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FLOOD_AND_DIE, "import failed: killed by signal 40 (SIGRTMIN+6)"),
        ("import numpy as np\n\nTABLE = np.ones(2**58)", "import failed: "),
    ],
)
def test_system_that_kills_its_process_is_reported(
    make_spec: MakeSpec, make_module: Callable[[str], str], text: str, reason: str
) -> None:
    (answer,) = doctor.check_systems([make_spec(system="odd", adapter=make_module(text))])
    assert str(answer.reason).startswith(reason)


@pytest.mark.slow
def test_the_engine_is_measured_against_itself(monkeypatch: Patch) -> None:
    monkeypatch.setattr(doctor, "SECONDS_OF_ITSELF", 0.0)
    (ratio,) = doctor.measure_against_itself(1)
    assert 0.1 < ratio < 10


@pytest.mark.parametrize(
    ("ratios", "value", "is_trusted"),
    [
        ([1.004, 0.995, 1.0], "1.000 (0.995 to 1.004), engine against itself", True),
        ([1.004, 0.98, 1.0], "1.000 (0.980 to 1.004), engine against itself", False),
        ([], "none", False),
    ],
)
def test_a_machine_is_trusted_if_the_engine_equals_itself(
    ratios: list[float], value: str, is_trusted: bool
) -> None:
    finding = doctor.judge_against_itself(ratios)
    assert finding.value == value
    assert (finding.advice == "") == is_trusted


ANSWERS = [doctor.Availability("null", "cpu", None)]
LACKING = Finding("matmuls", "OpenBLAS 0.3 of NumPy's wheel", "pip install scipy-openblas64")


def test_missing_library_is_reported_but_not_as_noise() -> None:
    machine = describe_machine()
    text = doctor.to_text(machine, ANSWERS, [Finding("swap used", "0 MiB")], LACKING)
    assert "OpenBLAS 0.3 of NumPy's wheel  <- pip install scipy-openblas64" in text
    assert text.endswith("  yes")
    reported = json.loads(doctor.to_json(machine, ANSWERS, [], LACKING))
    assert reported["matmuls"]["advice"] == "pip install scipy-openblas64"
    assert reported["quiet"]
