"""Pending work of a run: steps without a valid record, within a budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.measuring.processes.launch import record_unmeasured
from dynbatch.harness.planning.artifacts import Choices, PlannedTrial, build_choices
from dynbatch.harness.planning.durations import DRAWN_S
from dynbatch.harness.planning.job_specs import Step
from dynbatch.harness.planning.pending import Pending, find_pending, select_within_budget
from dynbatch.harness.records.record import build_record_path, write_record
from dynbatch.harness.trials.sources import SourceHashes
from dynbatch.harness.trials.spec import TrialSpec
from tests.support.measured import MakeSpec, measure_at


@pytest.fixture
def choices(tmp_path: Path) -> Choices:
    return build_choices({"scale": "smoke", "device": "cpu", "results_dir": str(tmp_path)}, {})


@pytest.fixture
def trial(make_spec: MakeSpec) -> PlannedTrial:
    return PlannedTrial(make_spec(), {}, (), rounds=4)


@pytest.fixture
def pending(trial: PlannedTrial, choices: Choices) -> Pending:
    """Return the pending work of a trial with valid, outdated, failed and missing rounds."""
    measure_round(trial, choices, 0)
    measure_round(trial, choices, 1, source_sha256="of older code")
    measure_round(trial, choices, 2, status="crash")
    return find_pending(choices, {"table": [trial]}, {}, (), SourceHashes())


def measure_round(trial: PlannedTrial, choices: Choices, round_: int, **changes: Any) -> Path:
    """Measure a round, and write its record with changes."""
    path = trial.list_record_paths(choices.results_dir)[round_]
    record = measure_at(trial.spec.replace_round(round_), path).model_copy(update=changes)
    path.unlink()
    write_record(path, record)
    return path


def test_failed_steps_are_pending_on_request(pending: Pending, trial: PlannedTrial) -> None:
    steps = [Step(trial.trial_id, round_) for round_ in range(4)]
    assert [step in pending.lacking for step in steps] == [False, True, False, True]
    assert [pending.is_in(step) for step in steps] == [True] * 4
    assert pending.choose(steps, failed=False) == (steps[1], steps[3])
    assert pending.choose(steps, failed=True) == tuple(steps[1:])
    plan = pending.build_run_plan(steps, n_drawn=0)
    assert set(plan.seconds) == {str(pending.missing[step].file) for step in steps[1:]}
    assert all(seconds > 0 for seconds in plan.seconds.values())


def test_budget_selects_only_missing_steps(trial: PlannedTrial, choices: Choices) -> None:
    missing = find_pending(choices, {"table": [trial]}, {}, (), SourceHashes()).missing
    one_round_s = missing[Step(trial.trial_id, 0)].seconds
    budget = f"{DRAWN_S + 1.5 * one_round_s}s"
    found = find_pending(choices, {"table": [trial]}, {}, (), SourceHashes(), budget)
    assert found.now == {Step(trial.trial_id, 0)}
    assert found.is_in(Step(trial.trial_id, 0))
    assert not found.is_in(Step(trial.trial_id, 1))
    assert "3 more are left for the next run" in found.describe_work(found.now, n_drawn=1)


def test_a_trial_unsupported_on_a_gpu_is_asked_once(make_spec: MakeSpec, choices: Choices) -> None:
    on_cuda, on_cpu = (
        PlannedTrial(make_spec(device=device), {}, (), rounds=4) for device in ("cuda", "cpu")
    )
    asked: list[list[str]] = []

    def explain(specs: Iterable[TrialSpec]) -> dict[str, str]:
        asked.append([spec.trial_id for spec in specs])
        return {on_cuda.trial_id: "no build of it"}

    def find() -> Pending:
        plans = {"table": [on_cuda, on_cpu]}
        return find_pending(choices, plans, {}, (), SourceHashes(), None, None, explain)

    found = find()
    assert asked == [[on_cuda.trial_id]]
    others = {Step(on_cpu.trial_id, round_) for round_ in range(4)}
    assert found.lacking == {Step(on_cuda.trial_id, 0), *others}
    assert found.unsupported == {on_cuda.trial_id: "no build of it"}
    words = "1 of the trials are unsupported here, and recorded once"
    assert words in found.describe_work(found.now, n_drawn=0)
    path = build_record_path(choices.results_dir, on_cuda.trial_id, 0)
    record_unmeasured(on_cuda.spec, path, "unsupported", "no build of it")
    assert find().lacking == others
    assert asked[1:] == [[]]
    elsewhere = replace(on_cuda.spec, python="/of/the/framework")
    on_cuda = replace(on_cuda, spec=elsewhere)
    assert Step(on_cuda.trial_id, 0) in find().lacking, "another interpreter may run it"


def test_compile_time_and_budget_are_announced(trial: PlannedTrial, choices: Choices) -> None:
    measure_round(trial, choices, 0, compile_s=120.0)
    found = find_pending(choices, {"table": [trial]}, {}, (), SourceHashes(), "9h")
    text = found.describe_work(found.now, n_drawn=0)
    assert ", 6 min of it to compile, by 1 records of this machine (budget: 9 h)" in text


def test_outdated_records_over_budget_are_set_aside(trial: PlannedTrial, choices: Choices) -> None:
    path = measure_round(trial, choices, 1, source_sha256="of older code")
    plans = {"table": [replace(trial, rounds=2)]}
    whole = find_pending(choices, plans, {}, (), SourceHashes())
    budget = f"{DRAWN_S + 1.5 * whole.missing[Step(trial.trial_id, 0)].seconds}s"
    find_pending(choices, plans, {}, (), SourceHashes(), budget).put_outdated_aside()
    assert not path.exists()
    assert list(path.parent.glob("superseded/*"))


def test_a_budget_is_for_the_experiments_that_a_run_draws(
    trial: PlannedTrial, make_spec: MakeSpec, choices: Choices
) -> None:
    """Other experiments get none of it, even headlines, and keep their outdated records."""
    other = PlannedTrial(make_spec(batch_size=3), {}, (), rounds=4)
    path = measure_round(other, choices, 0, source_sha256="of older code")
    plans = {"headline": [other], "table": [trial]}
    drawn = {"drawn": ["table"]}
    missing = find_pending(choices, plans, {}, (), SourceHashes(), **drawn).missing
    budget = f"{DRAWN_S + 1.5 * missing[Step(trial.trial_id, 0)].seconds}s"
    found = find_pending(choices, plans, {}, ["headline"], SourceHashes(), budget, **drawn)
    assert found.now == {Step(trial.trial_id, 0)}
    assert "; 3 more are left for the next run" in found.describe_work(found.now, n_drawn=1)
    found.put_outdated_aside()
    assert path.exists()


def steps(*names: str, n_rounds: int) -> list[Step]:
    return [Step(name, round_) for name in names for round_ in range(n_rounds)]


HEADLINE, TABLE = steps("a", "b", n_rounds=2), steps("b", "c", "d", n_rounds=2)
ARTIFACTS = {"headline": HEADLINE, "table": TABLE}
TEN = dict.fromkeys([*HEADLINE, *TABLE], 10.0)


@pytest.mark.parametrize(
    ("budget_s", "expected"),
    [
        (20, {"a0", "b0"}),
        (39, {"a0", "b0"}),  # the table's first round does not fit
        (40, {"a0", "b0", "c0", "d0"}),
        (60, {"a0", "b0", "c0", "d0", "a1", "b1"}),
        (80, {"a0", "b0", "c0", "d0", "a1", "b1", "c1", "d1"}),
    ],
)
def test_one_round_of_everything_comes_first(budget_s: float, expected: set[str]) -> None:
    found = select_within_budget(budget_s, ARTIFACTS, TEN)
    assert {f"{step.name}{step.round}" for step in found} == expected


def test_artifact_over_budget_does_not_block_smaller_ones() -> None:
    seconds = TEN | {Step("a", 0): 100.0}
    found = select_within_budget(35, ARTIFACTS, seconds)
    assert found == {Step(name, 0) for name in "bcd"}


def test_insufficient_budget_names_the_needed_time() -> None:
    words = (
        "budget of 22 s is too short: the shortest round, of headline, takes about 23 s with 3 s to"
        " draw"
    )
    with pytest.raises(ConfigError, match=words):
        select_within_budget(22, ARTIFACTS, TEN, drawing_s=3)


def test_any_budget_suffices_if_nothing_is_missing() -> None:
    assert select_within_budget(1, {}, {}) == frozenset()


@given(
    st.dictionaries(
        st.sampled_from("pqr"),
        st.lists(st.builds(Step, st.sampled_from("abcde"), st.integers(0, 2)), unique=True),
    ),
    st.floats(1, 100),
    st.lists(st.floats(0.5, 20), min_size=15, max_size=15),
)
def test_it_is_kept_and_rounds_are_whole(
    artifacts: dict[str, list[Step]], budget_s: float, costs: list[float]
) -> None:
    every = [Step(name, round_) for name in "abcde" for round_ in range(3)]
    seconds = dict(zip(every, costs, strict=True))
    try:
        chosen = select_within_budget(budget_s, artifacts, seconds)
    except ConfigError:
        chosen = frozenset()
    assert sum(seconds[step] for step in chosen) <= budget_s + 1e-6
    rounds = [
        {step for step in missing if step.round == k}
        for missing in artifacts.values()
        for k in range(3)
    ]
    assert chosen == frozenset().union(*(whole for whole in rounds if whole <= chosen))
