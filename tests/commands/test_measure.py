"""Jobs of the pipeline: rounds of trials and counts by job specs, and nothing twice."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.commands import measure
from dynbatch.harness.machine import folders
from dynbatch.harness.machine.facts import list_usable_cpus
from dynbatch.harness.measuring import block
from dynbatch.harness.measuring.processes.launch import record_unmeasured
from dynbatch.harness.planning import locks
from dynbatch.harness.planning.artifacts import build_choices, plan_artifact
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.job_specs import (
    VARIABLE,
    Order,
    RunPlan,
    Step,
    build_done_path,
    build_order_path,
    compute_code_version,
)
from dynbatch.harness.planning.nodes import Nodes
from dynbatch.harness.records.record import build_record_path, read_record, write_record
from dynbatch.harness.terminal import measurement
from dynbatch.harness.terminal.status import read_current_work
from dynbatch.harness.trials.sources import hash_trial_source
from dynbatch.harness.trials.spec import TrialSpec
from tests.support.measured import MakeSpec
from tests.support.records import MakeRecord

Output = pytest.CaptureFixture[str]
HERE = Nodes("small", n_cpus=len(list_usable_cpus()), memory_gib=0.5)


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use separate locks, so that tests do not wait for other runs on the machine."""
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(folders, "MEMORY", tmp_path / "memory")


def order(results: Path, *repetitions: Sequence[TrialSpec], nodes: Nodes | None = None) -> Order:
    """Build a job spec of trials, each with its round."""
    specs = {spec.trial_id: spec for repetition in repetitions for spec in repetition}
    steps = tuple(
        tuple(Step(spec.trial_id, spec.round) for spec in repetition) for repetition in repetitions
    )
    code = "" if nodes is None else compute_code_version()
    return Order(results, nodes, code, repetitions=steps, specs=specs)


def done_by(one: Order) -> int:
    one.write(build_order_path(one.results_dir, "some"))
    done = build_done_path(one.results_dir, "some")
    return measure.main([str(build_order_path(one.results_dir, "some")), "--done", str(done)])


def is_done(results: Path) -> bool:
    return build_done_path(results, "some").exists()


def record_at(results: Path, spec: TrialSpec) -> Path:
    return build_record_path(results, spec.trial_id, spec.round)


def test_planned_trial_matches_its_bench_command(tmp_path: Path) -> None:
    choices = build_choices({"scale": "smoke", "device": "cpu"}, {})
    trials = plan_artifact("headline_tree_lstm", choices, Composer())
    for trial in trials:
        spec = trial.to_spec()
        assert spec.trial_id == trial.trial_id
        assert spec.command.startswith("bench ")
        assert f"system={spec.system}" in spec.command
    command = trials[0].to_spec(tmp_path / "my conf").command
    assert f"'--config-path={tmp_path}/my conf'" in command


@pytest.mark.parametrize("nodes", [None, HERE])
def test_trials_are_measured_round_by_round_and_not_twice(
    make_spec: MakeSpec, nodes: Nodes | None, tmp_path: Path, capfd: Output
) -> None:
    specs = [make_spec(batch_size=size, round=k) for k in (0, 1) for size in (1, 2)]
    results = tmp_path / "results"
    ordered = order(results, specs[:2], specs[2:], nodes=nodes)
    assert done_by(ordered) == 0
    paths = [record_at(results, spec) for spec in specs]
    assert [read_record(path).status for path in paths] == ["ok"] * 4
    in_time = sorted(paths, key=lambda path: path.stat().st_mtime_ns)
    assert [read_record(path).trial.round for path in in_time] == [0, 0, 1, 1]
    assert is_done(results)
    assert not list(read_current_work(results))

    before = [path.read_bytes() for path in paths]
    paths[3].unlink()
    assert done_by(ordered) == 0, "as after a node's death"
    assert "reused" in "".join(capfd.readouterr())
    assert [path.read_bytes() for path in paths[:3]] == before[:3]
    assert paths[3].exists()


def test_failed_trial_does_not_affect_other_records(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An internal error in one trial does not delete other records, either."""
    wrong = make_spec(
        system="vertex", adapter="dynbatch.systems.on_core.vertex", system_options={"x": 1}
    )
    specs = [make_spec(), wrong, make_spec(batch_size=8)]
    assert done_by(order(tmp_path, specs)) == 1
    assert [record_at(tmp_path, spec).exists() for spec in specs] == [True, False, True]
    assert not is_done(tmp_path)

    whole = measure.measure_all

    def fails(planned: Sequence[measure.Measurement], *more: Any, **named: Any) -> int:
        return 1 // 0 if planned[0].spec.batch_size == 16 else whole(planned, *more, **named)

    monkeypatch.setattr(measure, "measure_all", fails)
    specs = [make_spec(batch_size=size) for size in (16, 32)]
    assert done_by(order(tmp_path, *([spec] for spec in specs))) == 2
    assert [record_at(tmp_path, spec).exists() for spec in specs] == [False, True]
    assert not is_done(tmp_path)
    assert not list(read_current_work(tmp_path))


def test_a_trial_that_is_known_to_be_unsupported_starts_no_process(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block, "launch_worker", lambda *_: 1 // 0)
    spec = make_spec()
    ordered = replace(order(tmp_path, [spec]), unsupported={spec.trial_id: "no build of it"})
    assert done_by(ordered) == 0
    record = read_record(record_at(tmp_path, spec))
    assert (record.status, record.reason) == ("unsupported", "no build of it")
    assert record.source_sha256 == hash_trial_source(spec)


@pytest.mark.parametrize(("device", "n_locks"), [("cuda", 1), ("cpu", 0)])
def test_a_gpu_has_one_block_at_a_time(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, n_locks: int
) -> None:
    """Runs into other results directories wait for its lock."""
    found: list[list[Path]] = []

    def look(*_: Any) -> None:
        found.append([*(tmp_path / "memory").rglob("*H200__GPU-1.turn")])
        for lock in found[-1]:
            with lock.open("a") as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    monkeypatch.setattr(locks, "find_used_gpu", lambda: "H200, GPU-1")
    monkeypatch.setattr(measurement, "measure_block", look)
    assert done_by(order(tmp_path / "results", [make_spec(device=device)])) == 0
    ((*held,),) = found
    assert len(held) == n_locks
    assert not any(lock.exists() for lock in held)


def run_plan(folder: Path, spec: TrialSpec, until: float | None) -> str:
    seconds = {str(record_at(folder, spec)): 5.0, str(folder / "other.json"): 7.0}
    RunPlan(time.time() - 1, until, seconds).write(folder / "plan.json")
    return str(folder / "plan.json")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the file of messages outside the log."""
    with (tmp_path / "terminal").open("w") as file:
        monkeypatch.setattr(measure, "TERMINAL", file.fileno())
        yield tmp_path / "terminal"


def test_progress_in_a_run_shows_remaining_time(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Path
) -> None:
    spec = make_spec()
    monkeypatch.setenv(VARIABLE, run_plan(tmp_path, spec, None))
    assert done_by(order(tmp_path, [spec])) == 0
    (line,) = terminal.read_text().splitlines()
    assert line.startswith("[1/2] ")
    assert line.endswith(" s left")
    assert " ok" in line


def test_trial_exceeding_time_budget_is_left_for_next_run(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: Path
) -> None:
    spec, short = make_spec(), make_spec(batch_size=8)
    monkeypatch.setenv(VARIABLE, run_plan(tmp_path, spec, time.time() + 1))
    assert done_by(order(tmp_path, [spec], [short])) == 0
    assert "time budget exhausted" in terminal.read_text()
    assert [record_at(tmp_path, one).exists() for one in (spec, short)] == [False, True]


def test_a_trial_that_reached_a_limit_has_that_status_in_later_rounds(
    make_spec: MakeSpec, make_record: MakeRecord, tmp_path: Path
) -> None:
    late, other = make_spec(system="late"), make_spec(system="other")
    reached = build_record_path(tmp_path, late.trial_id, 0)
    record_unmeasured(late, reached, "timeout", "made up")
    write_record(build_record_path(tmp_path, other.trial_id, 0), make_record(other))
    last = [spec.replace_round(1) for spec in (late, other)]
    ordered = order(tmp_path, last)
    assert done_by(ordered) == 0
    found = {spec.system: read_record(record_at(tmp_path, spec)) for spec in last}
    statuses = {name: record.status for name, record in found.items()}
    assert statuses == {"late": "timeout", "other": "ok"}
    assert found["late"].reason == "as in round 0: made up"
    before = record_at(tmp_path, last[0]).read_bytes()
    assert done_by(ordered) == 0  # the record is reused
    assert record_at(tmp_path, last[0]).read_bytes() == before
    reached.unlink()  # to be measured again
    assert done_by(order(tmp_path, [late, last[0]])) == 0
    assert [read_record(record_at(tmp_path, spec)).status for spec in (late, last[0])] == ["ok"] * 2


def test_another_machine_than_planned_is_a_status(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec()
    other = order(tmp_path, [spec], nodes=Nodes("big", n_cpus=4096, memory_gib=0.5))
    assert done_by(other) == 0
    record = read_record(record_at(tmp_path, spec))
    assert record.status == "machine_mismatch"
    assert "is not a big: expected 4096 usable CPUs" in str(record.reason)
    assert not record.passes_s
    assert done_by(order(tmp_path, [spec], nodes=HERE)) == 0
    assert read_record(record_at(tmp_path, spec)).status == "ok"
    assert done_by(other) == 0
    assert read_record(record_at(tmp_path, spec)).status == "ok", "what is measured stays"


def test_other_code_measures_nothing(make_spec: MakeSpec, tmp_path: Path, capfd: Output) -> None:
    spec = make_spec()
    assert done_by(replace(order(tmp_path, [spec], nodes=HERE), code="3.11.0-beef")) == 1
    assert not record_at(tmp_path, spec).exists()
    assert not is_done(tmp_path)
    (line,) = capfd.readouterr().err.splitlines()
    assert "the head node has a different version of the code" in line


def counting(results: Path, *words: str) -> Order:
    code = compute_code_version()
    return Order(results, HERE, code, count=("policy=agenda", *words), shares_machine=True)


def test_a_count_is_done_as_ordered(tmp_path: Path) -> None:
    out = tmp_path / "counts/some.json"
    words = ("model=tree_lstm", "dataset=sst_synthetic", "batch_size=2", "timing.min_seconds=0")
    assert done_by(counting(tmp_path, *words, f"records={tmp_path}/raw", f"out={out}")) == 0
    (row,) = json.loads(out.read_text())
    assert row["policy"] == "agenda"
    assert not list(read_current_work(tmp_path))


@pytest.mark.parametrize(("counted", "code"), [(0, 0), (1, 1), (2, 2), (3, 0)])
def test_a_policy_that_fails_does_not_fail_the_job(
    counted: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure.subprocess, "call", lambda command: counted)
    assert done_by(counting(tmp_path)) == code
