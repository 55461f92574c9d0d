"""What the pipeline calls for every trial: planned before, composed no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.commands import measure
from harness.planning.artefacts import choices_from, plan_artefact
from harness.planning.compose import Composer
from harness.records.record import read_record
from harness.trials.spec import TrialSpec


def test_a_planned_trial_is_what_bench_would_measure() -> None:
    choices = choices_from({"scale": "smoke", "device": "cpu"}, {})
    for trial in plan_artefact("headline_tree_lstm", choices, Composer()):
        spec = TrialSpec.from_dict(json.loads(trial.as_json()))
        assert spec.trial_id == trial.trial_id
        assert spec.command.startswith("bench ")
        assert f"system={spec.system}" in spec.command


def test_a_folder_of_ones_own_is_told_with_the_command(tmp_path: Path) -> None:
    choices = choices_from({"scale": "smoke", "device": "cpu"}, {})
    trial = plan_artefact("headline_tree_lstm", choices, Composer())[0]
    command = json.loads(trial.as_json(tmp_path / "my conf"))["command"]
    assert f"'--config-path={tmp_path}/my conf'" in command


def test_it_leaves_a_record_of_the_round(
    make_spec: Callable[..., TrialSpec], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text, out = json.dumps(make_spec().to_dict()), tmp_path / "r3.json"
    typed = [text, "--round", "3", "--out", str(out), "--log", str(tmp_path / "r3.log")]
    assert measure.main(typed) == 0
    assert read_record(out).trial.round == 3
    assert "ok" in capfd.readouterr().out
    assert measure.main(typed) == 0
    assert "kept" in "".join(capfd.readouterr())


def test_what_is_refused_is_one_line(
    make_spec: Callable[..., TrialSpec], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    values = make_spec().to_dict() | {"batch_size": 0}
    typed = [json.dumps(values), "--round", "0", "--out", str(tmp_path / "r0.json")]
    assert measure.main([*typed, "--log", str(tmp_path / "log")]) == 1
    assert capfd.readouterr().err == (
        "bench: batch_size=0 is not allowed; give a value of at least 1\n"
    )
