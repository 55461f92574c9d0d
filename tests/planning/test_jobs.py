"""Order of measurement, and jobs of the pipeline: every round of every trial once, in order."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from dynbatch.harness.errors import ConfigError, OutputError
from dynbatch.harness.planning import jobs
from dynbatch.harness.planning.artifacts import PlannedTrial
from dynbatch.harness.planning.job_specs import Step, build_done_path
from dynbatch.harness.planning.jobs import (
    ALL,
    Job,
    build_local_jobs,
    build_node_jobs,
    estimate_runtime_min,
    update_markers,
)
from dynbatch.harness.planning.locks import begin_run
from dynbatch.harness.planning.ordering import (
    AT_LARGEST,
    compute_shared_n_instances,
    group_by_point,
)
from dynbatch.harness.records.record import build_record_path
from dynbatch.harness.terminal.command_line import parse, plan
from dynbatch.harness.trials.spec import Limits, Timing, TrialSpec
from dynbatch.harness.trials.workload import load_workload
from tests.support.measured import MakeSpec

SYSTEMS = [f"system_{name}" for name in "abcdef"]


def drawn(specs: list[TrialSpec], round_: int) -> list[TrialSpec]:
    points = group_by_point(specs, round_, lambda spec: spec)
    return [*itertools.chain.from_iterable(points.values())]


def names(specs: list[TrialSpec]) -> list[str]:
    return [spec.system for spec in specs]


def grid(make_spec: MakeSpec, systems: list[str] = SYSTEMS) -> list[TrialSpec]:
    sizes = (8, 16, 32)
    return [make_spec(system=s, batch_size=b) for b, s in itertools.product(sizes, systems)]


def test_the_systems_of_a_point_stand_together_and_points_stay(make_spec: MakeSpec) -> None:
    for round_ in range(4):
        sizes = [spec.batch_size for spec in drawn(grid(make_spec), round_)]
        assert sizes == [8] * 6 + [16] * 6 + [32] * 6


def test_every_round_and_every_point_has_an_order_of_its_own(make_spec: MakeSpec) -> None:
    orders = {
        tuple(names(drawn(grid(make_spec), round_))[at : at + 6])
        for round_ in range(4)
        for at in (0, 6, 12)
    }
    assert len(orders) >= 11  # of 12 that are drawn out of 720
    assert {frozenset(order) for order in orders} == {frozenset(SYSTEMS)}


def test_first_system_changes_between_rounds(make_spec: MakeSpec) -> None:
    first = [names(drawn(grid(make_spec), round_))[0] for round_ in range(60)]
    assert min(first.count(system) for system in SYSTEMS) >= 3  # 10 on average


def test_the_order_is_the_same_again_and_a_system_more_changes_nothing(make_spec: MakeSpec) -> None:
    specs = grid(make_spec)
    assert drawn(specs, 1) == drawn(specs, 1)
    fewer = grid(make_spec, SYSTEMS[1:])
    kept = [spec for spec in drawn(specs, 1) if spec.system != SYSTEMS[0]]
    assert drawn(fewer, 1) == kept


def test_systems_that_compile_longest_start_first(make_spec: MakeSpec) -> None:
    quick = [make_spec(system=system) for system in SYSTEMS]
    slow = [
        make_spec(system=name, adapter=f"dynbatch.systems.{name}")
        for name in ("on_tensorflow.static", "on_jax.scan", "on_torch.compiled")
    ]
    for round_ in range(4):
        order = names(drawn([*quick, *slow], round_))
        assert order[:3] == ["on_torch.compiled", "on_jax.scan", "on_tensorflow.static"]


def test_policies_and_options_are_of_the_systems_not_of_the_point(make_spec: MakeSpec) -> None:
    alike = [make_spec(policy=policy) for policy in ("agenda", "depth")]
    alike += [make_spec(system_options={"fusion": False}), make_spec(system="other")]
    between = [*alike[:2], make_spec(hidden_size=9), *alike[2:]]
    sizes = [spec.hidden_size for spec in drawn(between, 0)]
    assert sizes == [8, 8, 8, 8, 9]


SIZES = (1, 2, 8)


@pytest.mark.parametrize("order", ["shuffled", "file", "length"])
def test_all_batch_sizes_measure_the_same_instances(make_spec: MakeSpec, order: str) -> None:
    sentences = {
        **{"model": "var_lstm", "dataset": "ptb_synthetic", "split": "dev", "order": order},
        **{"model_options": {}, "dataset_options": {}},
        "timing": Timing(n_instances=16),
    }
    found = {}
    for size in SIZES:
        work = load_workload(make_spec(**sentences, batch_size=size))
        assert {len(mini_batch) for mini_batch in work.mini_batches} == {size}, "all are full"
        flat = [chain for mini_batch in work.mini_batches for chain in mini_batch]
        found[size] = sorted(tuple(chain.words) for chain in flat)
    assert len(found[1]) == 16
    assert found[1] == found[2] == found[8]


def test_partial_mini_batches_are_rejected(make_spec: MakeSpec) -> None:
    for n_instances in (9, 1):
        with pytest.raises(ConfigError, match=f"n_instances={n_instances} is not a multiple of"):
            make_spec(batch_size=2, timing=Timing(n_instances=n_instances))


@pytest.mark.parametrize(
    ("sizes", "n"), [((16, 64), 256), ((1, 256), 1024), ((3, 4), 48), ((48, 64), 768)]
)
def test_a_sweep_fills_mini_batches_of_every_size(sizes: tuple[int, ...], n: int) -> None:
    assert compute_shared_n_instances(sizes, n_mini_batches=16) == n
    assert all(n % size == 0 for size in sizes)
    assert n >= 16 * min(sizes)
    assert n >= AT_LARGEST * max(sizes)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["batch_size=2,8"], {2: (16, 32), 8: (4, 32)}),
        (["batch_size=2,8", "timing.n_mini_batches=3"], {2: (3, 0), 8: (3, 0)}),
        (["batch_size=2,8", "timing.n_instances=8"], {2: (4, 8), 8: (1, 8)}),
        (["batch_size=2,8", "++timing.n_instances=8"], {2: (4, 8), 8: (1, 8)}),
        (["batch_size=2,8", "timing={n_instances:8}"], {2: (4, 8), 8: (1, 8)}),
        (["batch_size=8", "hidden_size=2,3"], {8: (16, 0)}),
    ],
)
def test_bench_sweeps_over_the_same_instances(
    typed: list[str], found: dict[int, tuple[int, int]], tmp_path: Path
) -> None:
    words = ["-m", "system=null", "model=tree_fc", "dataset=complete_trees", *typed]
    specs = [one.spec for one in plan(parse([*words, f"results_dir={tmp_path}"]), words)]
    planned = {s.batch_size: (s.n_mini_batches, s.timing.n_instances) for s in specs}
    assert planned == found


# --- jobs ---

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
    monkeypatch.setattr(jobs, "estimate_usual_s", lambda *_: 1.0)


def test_jobs_have_the_steps_of_their_experiment_and_all_has_every_step(plans: Plans) -> None:
    jobs = build_local_jobs({**plans, "counts": []})
    assert jobs.keys() == {ALL, *plans}
    for name, trials in plans.items():
        assert set(jobs[name].steps) == wanted(trials)
        assert jobs[name].artifacts == {name}
    assert set(jobs[ALL].steps) == set().union(*map(wanted, plans.values()))
    assert all(len(set(job.steps)) == len(job.steps) for job in jobs.values())


def test_rounds_in_order_and_systems_as_drawn(plans: Plans, specs: dict[str, TrialSpec]) -> None:
    for job in (*build_local_jobs(plans).values(), *build_node_jobs(plans, 1e6, RESULTS).values()):
        rounds = [step.round for step in job.steps]
        assert rounds == sorted(rounds)
        points = []
        for repetition in job.repetitions:
            members = [specs[step.name] for step in repetition]
            (round_,) = {step.round for step in repetition}
            (point,) = {spec.point for spec in members}
            points.append((round_, point))
            assert members == drawn(members, round_)
        assert len(set(points)) == len(points), "a point is one turn in each round"


def test_prioritized_experiment_comes_first(plans: Plans) -> None:
    (first, *_, last) = build_local_jobs(plans, {"apart"})[ALL].repetitions
    assert set(first) == {step for step in wanted(plans["apart"]) if step.round == 0}
    assert {step.round for step in last} == {2}


@pytest.mark.usefixtures("a_second")
def test_node_jobs_split_steps_at_whole_points(plans: Plans, specs: dict[str, TrialSpec]) -> None:
    """A point of the table and the headline takes 8 steps; unrelated points are separate jobs."""
    for block_s, found in ((0.1, [1, 1, 1]), (15.9, [1, 1, 1]), (16.0, [1, 2]), (1e6, [1, 2])):
        built = build_node_jobs(plans, block_s, RESULTS).values()
        steps = [step for job in built for step in job.steps]
        assert set(steps) == set().union(*map(wanted, plans.values()))
        assert len(set(steps)) == len(steps)
        points = [{specs[step.name].point for step in job.steps} for job in built]
        assert sorted(map(len, points)) == found
        assert sum(found) == len(set().union(*points)), "a point is in one job"
    artifacts = {job.artifacts for job in built}
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
    file = build_done_path(tmp_path, done.name)
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


def test_later_rounds_of_an_unsupported_trial_have_no_record(done: Job, tmp_path: Path) -> None:
    build_record_path(tmp_path, *done.steps[-1]).unlink()
    update_markers([done], tmp_path, nothing)
    assert build_done_path(tmp_path, done.name).stat().st_mtime == 1000


def test_marker_without_records_stays_during_runs(done: Job, plans: Plans, tmp_path: Path) -> None:
    update_markers(build_local_jobs(plans).values(), tmp_path, lambda step: step not in done.steps)
    assert list((tmp_path / "measured").iterdir()) == [build_done_path(tmp_path, done.name)]
    with begin_run(tmp_path), begin_run(tmp_path):
        update_markers([done], tmp_path, lambda _: True)
        assert build_done_path(tmp_path, done.name).exists()
    update_markers([done], tmp_path, lambda _: True)
    assert not build_done_path(tmp_path, done.name).exists()


def test_markers_create_no_results_dir_and_report_a_bad_one(done: Job, tmp_path: Path) -> None:
    update_markers([done], tmp_path / "results", nothing)
    assert not (tmp_path / "results").exists()
    (tmp_path / "measured").write_text("in the way")
    with pytest.raises(OutputError, match=r"cannot be written .*; existing records are intact"):
        update_markers([done], tmp_path, nothing)
