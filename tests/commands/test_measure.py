"""What the pipeline calls for every trial: planned before, composed no more."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.commands import measure
from harness.planning.artefacts import choices_from, plan_artefact
from harness.planning.config import Composer
from harness.planning.run_plan import VARIABLE, RunPlan
from harness.records.measured import sitting_path
from harness.records.record import Record, path_of, read_record, write_record
from harness.terminal import in_a_run
from harness.trials.spec import Screening, TrialSpec

MakeSpec = Callable[..., TrialSpec]


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


def typed(folder: Path, *specs: TrialSpec, round_: int = 0) -> list[str]:
    texts = [json.dumps(spec.to_dict()) for spec in specs]
    where = ["--results-dir", str(folder), "--done", str(done_file(folder))]
    return [*texts, "--round", str(round_), *where]


def done_file(folder: Path) -> Path:
    return sitting_path(folder, "some", 0)


def named_in(file: Path) -> list[str]:
    found: list[str] = json.loads(file.read_text())["records"]
    return found


def test_it_leaves_records_of_the_round_and_says_which(
    make_spec: MakeSpec, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    specs = [make_spec(batch_size=size) for size in (1, 2)]
    records = [path_of(tmp_path, spec.trial_id, 3) for spec in specs]
    assert measure.main(typed(tmp_path, *specs, round_=3)) == 0
    assert [read_record(path).trial.round for path in records] == [3, 3]
    assert named_in(done_file(tmp_path)) == [str(path) for path in records]
    assert "ok" in capfd.readouterr().out
    before = [path.read_bytes() for path in records]
    assert measure.main(typed(tmp_path, *specs, round_=3)) == 0
    assert "kept" in "".join(capfd.readouterr())
    assert [path.read_bytes() for path in records] == before


def test_what_is_refused_is_one_line(
    make_spec: MakeSpec, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    values = make_spec().to_dict() | {"batch_size": 0}
    command = [json.dumps(values), *typed(tmp_path, make_spec())[1:]]
    assert measure.main(command) == 1
    assert capfd.readouterr().err == (
        "bench: batch_size=0 is not allowed; give a value of at least 1\n"
    )


def test_what_is_refused_takes_no_other_record_along(make_spec: MakeSpec, tmp_path: Path) -> None:
    wrong = make_spec(system="vertex", adapter="systems.on_core.vertex", system_options={"x": 1})
    specs = [make_spec(), wrong, make_spec(batch_size=8)]
    assert measure.main(typed(tmp_path, *specs)) == 1
    there = [path_of(tmp_path, spec.trial_id, 0).exists() for spec in specs]
    assert there == [True, False, True]
    assert not done_file(tmp_path).exists(), "the sitting is not over"


def run_plan(folder: Path, spec: TrialSpec, until: float | None) -> Path:
    path = folder / "plan.json"
    seconds = {str(path_of(folder, spec.trial_id, 0)): 5.0, str(folder / "other.json"): 7.0}
    RunPlan(time.time() - 1, until, seconds).write(path)
    return path


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What is said past the log."""
    with (tmp_path / "terminal").open("w") as file:
        monkeypatch.setattr(in_a_run, "TERMINAL", file.fileno())
        yield tmp_path / "terminal"


def test_in_a_run_it_says_how_long_the_rest_takes(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Path
) -> None:
    spec = make_spec()
    monkeypatch.setenv(VARIABLE, str(run_plan(tmp_path, spec, None)))
    assert measure.main(typed(tmp_path, spec)) == 0
    (line,) = terminal.read_text().splitlines()
    assert line.startswith("[1/2] ")
    assert line.endswith(" s left")
    assert " ok" in line


def test_what_would_end_too_late_is_left_for_the_next_run(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Path
) -> None:
    spec, short = make_spec(), make_spec(batch_size=8)
    monkeypatch.setenv(VARIABLE, str(run_plan(tmp_path, spec, time.time() + 1)))
    assert measure.main(typed(tmp_path, spec, short)) == 0
    assert "the budget is over" in terminal.read_text()
    assert not path_of(tmp_path, spec.trial_id, 0).exists()
    assert named_in(done_file(tmp_path)) == [str(path_of(tmp_path, short.trial_id, 0))]
    monkeypatch.delenv(VARIABLE)
    assert measure.main(typed(tmp_path, spec, short)) == 0
    assert len(named_in(done_file(tmp_path))) == 2


def test_who_is_far_behind_is_called_off_with_the_reason(
    make_spec: MakeSpec,
    make_record: Callable[..., Record],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    screening = Screening(rounds=2, factor=1.5)
    quick = make_spec(screening=screening)
    slow = make_spec(screening=screening, system="slow")
    ours = make_spec(system="ours")
    for spec, samples in ((quick, (0.1, 0.1)), (slow, (0.5, 0.5)), (ours, (0.5, 0.5))):
        for round_ in range(2):
            record = make_record(spec.with_round(round_), samples_s=samples)
            write_record(path_of(tmp_path, spec.trial_id, round_), record)
    command = typed(tmp_path, quick, slow, ours, round_=2)
    assert measure.main(command) == 0
    found = {
        spec.system: read_record(path_of(tmp_path, spec.trial_id, 2))
        for spec in (quick, slow, ours)
    }
    assert {name: record.status for name, record in found.items()} == {
        "fake": "ok",
        "slow": "called_off",
        "ours": "ok",
    }
    reason = "at least 5.0 times as slow as fake in each of the first 2 rounds"
    assert found["slow"].reason == reason
    assert f"called_off: {reason}" in "".join(capfd.readouterr())
    before = path_of(tmp_path, slow.trial_id, 2).read_bytes()
    assert measure.main(command) == 0  # it stands
    assert path_of(tmp_path, slow.trial_id, 2).read_bytes() == before
