"""Jobs of the pipeline: every round of every trial once, in order, for its experiments only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dynbatch.harness.errors import OutputError
from dynbatch.harness.planning import jobs
from dynbatch.harness.planning.artifacts import PlannedTrial
from dynbatch.harness.planning.job_specs import Step
from dynbatch.harness.planning.jobs import (
    ALL,
    Job,
    build_local_jobs,
    build_node_jobs,
    estimate_runtime_min,
    update_markers,
)
from dynbatch.harness.planning.locks import begin_run
from dynbatch.harness.planning.ordering import format_point, shuffle_round
from dynbatch.harness.records.record import build_record_path
from dynbatch.harness.trials.spec import Limits, TrialSpec
from tests.support.measured import MakeSpec

Plans = dict[str, list[PlannedTrial]]
RESULTS = Path("results")


@pytest.fixture
def plans(make_spec: MakeSpec) -> Plans:
    """Return plans of a table, a headline that shares two of its systems, and another one."""

    def plan(systems: str, rounds: int, sizes: tuple[int, ...]) -> list[PlannedTrial]:
        grid = [{"system": system, "batch_size": size} for size in sizes for system in systems]
        return [PlannedTrial(make_spec(**one), one, {}, rounds) for one in grid]

    return {
        "table": plan("abc", 2, (8, 16)),
        "headline": plan("ab", 3, (8, 16)),
        "apart": plan("ab", 2, (32,)),
    }


@pytest.fixture
def specs(plans: Plans) -> dict[str, TrialSpec]:
    return {trial.trial_id: trial.spec for plan in plans.values() for trial in plan}


def wanted(plan: list[PlannedTrial]) -> set[Step]:
    return {Step(trial.trial_id, round_) for trial in plan for round_ in range(trial.rounds)}


@pytest.fixture
def a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a round of any trial take a second."""
    monkeypatch.setattr(jobs, "_estimate_usual_s", lambda _: 1.0)


def test_jobs_have_the_steps_of_their_experiment_and_all_has_every_step(plans: Plans) -> None:
    jobs = build_local_jobs({**plans, "counts": []})
    assert jobs.keys() == {ALL, *plans}
    for name, plan in plans.items():
        assert set(jobs[name].steps) == wanted(plan)
        assert jobs[name].artifacts == {name}
    assert set(jobs[ALL].steps) == set().union(*map(wanted, plans.values()))
    assert all(len(set(job.steps)) == len(job.steps) for job in jobs.values())


def test_rounds_follow_each_other_and_systems_stand_as_drawn(
    plans: Plans, specs: dict[str, TrialSpec]
) -> None:
    for job in (*build_local_jobs(plans).values(), *build_node_jobs(plans, 1e6, RESULTS).values()):
        rounds = [step.round for step in job.steps]
        assert rounds == sorted(rounds)
        points = []
        for repetition in job.repetitions:
            members = [specs[step.name] for step in repetition]
            (round_,) = {step.round for step in repetition}
            (point,) = set(map(format_point, members))
            points.append((round_, point))
            assert members == shuffle_round(members, round_, lambda spec: spec)
        assert len(set(points)) == len(points), "a point is one turn in each round"


def test_prioritized_experiment_comes_first(plans: Plans) -> None:
    (first, *_, last) = build_local_jobs(plans, {"apart"})[ALL].repetitions
    assert set(first) == {step for step in wanted(plans["apart"]) if step.round == 0}
    assert {step.round for step in last} == {2}


@pytest.mark.usefixtures("a_second")
@pytest.mark.parametrize("block_s", [0.1, 10.0, 1e6])
def test_on_nodes_each_step_is_in_one_job_and_a_point_in_no_two(
    plans: Plans, specs: dict[str, TrialSpec], block_s: float
) -> None:
    built = build_node_jobs(plans, block_s, RESULTS).values()
    steps = [step for job in built for step in job.steps]
    assert set(steps) == set().union(*map(wanted, plans.values()))
    assert len(set(steps)) == len(steps)
    points = [{format_point(specs[step.name]) for step in job.steps} for job in built]
    assert sum(map(len, points)) == len(set().union(*points))


def n_points(built: dict[str, Job], specs: dict[str, TrialSpec]) -> list[int]:
    return sorted(
        len({format_point(specs[one.name]) for one in job.steps}) for job in built.values()
    )


@pytest.mark.usefixtures("a_second")
def test_on_nodes_a_job_is_as_long_as_asked_or_as_its_point(
    plans: Plans, specs: dict[str, TrialSpec]
) -> None:
    """A point of the table and the headline takes 8 steps; unrelated points are separate jobs."""
    for block_s, found in ((0.1, [1, 1, 1]), (15.9, [1, 1, 1]), (16.0, [1, 2]), (1e6, [1, 2])):
        built = build_node_jobs(plans, block_s, RESULTS)
        assert n_points(built, specs) == found
    artifacts = {job.artifacts for job in built.values()}
    assert artifacts == {frozenset({"table", "headline"}), frozenset({"apart"})}


def test_on_nodes_a_name_is_that_of_its_work_and_of_the_folder_of_results(plans: Plans) -> None:
    """A run cancels its leftover jobs, but not those of a run into another directory."""
    names = build_node_jobs(plans, 1e6, RESULTS).keys()
    assert names == build_node_jobs(plans, 1e6, RESULTS).keys()
    assert all("/" not in name for name in names)
    assert names.isdisjoint(build_node_jobs(plans, 1e6, Path("elsewhere")).keys())
    less = {"table": plans["table"], "apart": plans["apart"]}
    assert len(names & build_node_jobs(less, 1e6, RESULTS).keys()) == 1


@pytest.mark.usefixtures("a_second")
def test_a_job_may_take_three_times_as_planned_and_one_trial_its_limit(make_spec: MakeSpec) -> None:
    specs = [make_spec(limits=Limits(time_s=600.0)), make_spec(limits=Limits(time_s=60.0))]
    assert estimate_runtime_min(specs * 60) == 5 + round((3 * 120 + 600) / 60)
    days = 2 * 24 * 60
    long = make_spec(limits=Limits(time_s=60.0 * days))
    assert estimate_runtime_min([long]) == 5 + days
    endless = make_spec(limits=Limits(time_s=None))
    assert estimate_runtime_min([endless]) == 5 + 24 * 60


@pytest.fixture
def done(plans: Plans, tmp_path: Path) -> Job:
    """Return a job whose records all exist; the newest one has the time 1000."""
    job = build_local_jobs(plans)["apart"]
    for age, step in enumerate(job.steps):
        record = build_record_path(tmp_path, *step)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text("{}")
        os.utime(record, (1000 - age, 1000 - age))
    return job


def nothing(_: Step) -> bool:
    return False


def test_a_file_is_as_old_as_the_newest_record(done: Job, tmp_path: Path) -> None:
    file = done.locate_done_file(tmp_path)
    update_markers([done], tmp_path, nothing)
    assert file.stat().st_mtime == 1000
    os.utime(file, (5000, 5000))
    update_markers([done], tmp_path, nothing)
    assert file.stat().st_mtime == 5000
    os.utime(build_record_path(tmp_path, *done.steps[0]), (6000, 6000))  # measured again, by bench
    before = file.read_bytes()
    update_markers([done], tmp_path, nothing)
    assert file.stat().st_mtime == 6000
    assert file.read_bytes() != before


def test_marker_without_records_is_removed_only_after_active_runs(
    done: Job, plans: Plans, tmp_path: Path
) -> None:
    update_markers(build_local_jobs(plans).values(), tmp_path, lambda step: step not in done.steps)
    assert list((tmp_path / "measured").iterdir()) == [done.locate_done_file(tmp_path)]
    with begin_run(tmp_path), begin_run(tmp_path):
        update_markers([done], tmp_path, lambda _: True)
        assert done.locate_done_file(tmp_path).exists()
    update_markers([done], tmp_path, lambda _: True)
    assert not done.locate_done_file(tmp_path).exists()


def test_markers_create_no_results_dir_and_report_unwritable_ones(
    done: Job, tmp_path: Path
) -> None:
    update_markers([done], tmp_path / "results", nothing)
    assert not (tmp_path / "results").exists()
    (tmp_path / "measured").write_text("in the way")
    with pytest.raises(OutputError, match=r"cannot be written .*; existing records are intact"):
        update_markers([done], tmp_path, nothing)
