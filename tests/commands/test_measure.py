"""What the pipeline calls for every trial: planned before, composed no more."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.commands import measure
from harness.counts.places import records_in
from harness.planning.artefacts import choices_from, plan_artefact
from harness.planning.compose import Composer
from harness.planning.run_plan import VARIABLE, RunPlan
from harness.records.postponed import forget_postponed, is_postponed
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


def run_plan(folder: Path, out: Path, until: float | None) -> Path:
    path = folder / "plan.json"
    RunPlan(time.time(), until, {str(out): 5.0, str(folder / "other.json"): 7.0}).write(path)
    return path


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What is said past the log."""
    with (tmp_path / "terminal").open("w") as file:
        monkeypatch.setattr(measure, "TERMINAL", file.fileno())
        yield tmp_path / "terminal"


def test_in_a_run_it_says_how_long_the_rest_takes(
    make_spec: Callable[..., TrialSpec],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    terminal: Path,
) -> None:
    text, out = json.dumps(make_spec().to_dict()), tmp_path / "trial" / "r0.json"
    monkeypatch.setenv(VARIABLE, str(run_plan(tmp_path, out, None)))
    assert measure.main([text, "--round", "0", "--out", str(out), "--log", f"{out}.log"]) == 0
    (line,) = terminal.read_text().splitlines()
    assert line.startswith("[1/2] ")
    assert line.endswith(" s left")
    assert " ok" in line


def test_what_would_end_too_late_is_left_for_the_next_run(
    make_spec: Callable[..., TrialSpec],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    terminal: Path,
) -> None:
    text, out = json.dumps(make_spec().to_dict()), tmp_path / "raw" / "trial" / "r0.json"
    typed = [text, "--round", "0", "--out", str(out), "--log", str(tmp_path / "log")]
    monkeypatch.setenv(VARIABLE, str(run_plan(tmp_path, out, time.time() + 1)))
    assert measure.main(typed) == 0
    assert is_postponed(out)
    assert "the budget is over" in terminal.read_text()
    assert records_in([tmp_path]) == []
    forget_postponed(tmp_path)
    assert not out.exists()
    monkeypatch.delenv(VARIABLE)
    assert measure.main(typed) == 0
    assert read_record(out).status == "ok"
    forget_postponed(tmp_path)
    assert out.exists(), "a record is kept"
