"""What a run still has to do: what no record answers; what failed is kept until it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.planning.artefacts import Choices, PlannedTrial, choices_from
from harness.planning.budget import Step
from harness.planning.durations import DRAWN_S
from harness.planning.pending import Pending, pending_of
from harness.records.record import Record, path_of, read_record, write_record
from harness.trials.sources import SourceHashes
from harness.trials.spec import TrialSpec
from tests.support.measured import measure_at


@pytest.fixture
def choices(tmp_path: Path) -> Choices:
    return choices_from({"scale": "smoke", "device": "cpu", "results_dir": str(tmp_path)}, {})


@pytest.fixture
def trial(make_spec: Callable[..., TrialSpec]) -> PlannedTrial:
    return PlannedTrial(make_spec(), {}, (), rounds=4)


@pytest.fixture
def pending(trial: PlannedTrial, choices: Choices) -> Pending:
    """Of a trial whose rounds are: measured, outdated by the code, failed, missing."""
    paths = trial.record_paths(choices.results_dir)
    for round_, path in enumerate(paths[:3]):
        path.parent.mkdir(parents=True, exist_ok=True)
        measure_at(trial.spec.with_round(round_), path)
    rewritten(paths[1], source_sha256="of older code")
    rewritten(paths[2], status="crash")
    return pending_of(choices, {"table": [trial]}, {}, (), SourceHashes())


def rewritten(path: Path, **changes: str) -> Record:
    record = read_record(path).model_copy(update=changes)
    path.unlink()
    write_record(path, record)
    return record


def test_what_no_record_answers_is_lacking(pending: Pending, trial: PlannedTrial) -> None:
    steps = [Step(trial.trial_id, round_) for round_ in range(4)]
    assert [pending.is_lacking(step) for step in steps] == [False, True, False, True]
    assert [pending.is_in(step) for step in steps] == [True] * 4


def test_what_failed_is_measured_when_its_job_runs(pending: Pending, trial: PlannedTrial) -> None:
    steps = [Step(trial.trial_id, round_) for round_ in range(4)]
    assert [pending.is_measured(step) for step in steps] == [False, True, True, True]
    plan = pending.run_plan(steps, n_drawn=0)
    assert set(plan.seconds) == {str(pending.files[step]) for step in steps[1:]}
    assert all(seconds > 0 for seconds in plan.seconds.values())


def test_a_budget_lets_in_what_is_lacking_alone(trial: PlannedTrial, choices: Choices) -> None:
    seconds = pending_of(choices, {"table": [trial]}, {}, (), SourceHashes()).seconds
    one_round_s = seconds[Step(trial.trial_id, 0)]
    budget = f"{DRAWN_S + 1.5 * one_round_s}s"
    found = pending_of(choices, {"table": [trial]}, {}, (), SourceHashes(), budget)
    assert found.now == {Step(trial.trial_id, 0)}
    assert found.is_in(Step(trial.trial_id, 0))
    assert not found.is_in(Step(trial.trial_id, 1))
    assert "3 more are left for the next run" in found.words(found.now, n_drawn=1)


def test_what_a_budget_leaves_out_is_not_drawn_of_older_code(
    trial: PlannedTrial, choices: Choices
) -> None:
    path = path_of(choices.results_dir, trial.trial_id, 1)
    path.parent.mkdir(parents=True)
    measure_at(trial.spec.with_round(1), path)
    rewritten(path, source_sha256="of older code")
    plans = {"table": [replace(trial, rounds=2)]}
    whole = pending_of(choices, plans, {}, (), SourceHashes())
    budget = f"{DRAWN_S + 1.5 * whole.seconds[Step(trial.trial_id, 0)]}s"
    pending_of(choices, plans, {}, (), SourceHashes(), budget).put_outdated_aside()
    assert not path.exists()
    assert list(path.parent.glob("superseded/*"))
