"""Files that jobs read: job specs, and the plan of a run with its remaining time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dynbatch.harness.errors import BenchError
from dynbatch.harness.planning.job_specs import (
    SMOOTHING_S,
    Order,
    RunPlan,
    Step,
    build_order_path,
    read_order,
    read_run_plan,
)
from dynbatch.harness.planning.nodes import Nodes
from tests.support.measured import MakeSpec

NODES = Nodes("small", n_cpus=2, memory_gib=2)


def test_written_orders_are_read_back_unchanged(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec(batch_size=2)
    name = spec.trial_id
    repetitions = ((Step(name, 0),), (Step(name, 1),))
    for order in (
        Order(tmp_path, NODES, "code", repetitions, {name: spec}),
        Order(tmp_path, NODES, "code", count=("model=tree_lstm", "out=x"), shares_machine=True),
        Order(tmp_path),
    ):
        order.write(build_order_path(tmp_path, "some"))
        assert read_order(build_order_path(tmp_path, "some")) == order


def test_an_order_that_a_node_does_not_see_is_one_line(tmp_path: Path) -> None:
    words = "set results_dir to a directory that the head node and all nodes share"
    with pytest.raises(BenchError, match=words):
        read_order(build_order_path(tmp_path / "elsewhere", "some"))
    place = build_order_path(tmp_path, "cut_off")
    place.parent.mkdir()
    place.write_text('{"results_dir": "x"')
    with pytest.raises(BenchError, match="is not a job spec"):
        read_order(place)


STEPS = {f"r{k}.json": 60.0 for k in range(10)}


@pytest.fixture(autouse=True)
def _work_in_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def remaining(plan: RunPlan, now: float, n_done: int) -> float:
    for name in list(STEPS)[:n_done]:
        Path(name).touch()
    return plan.estimate_remaining_s(now)


def test_remaining_time_is_first_the_planned_time_and_last_nothing() -> None:
    plan = RunPlan(1000.0, None, STEPS)
    assert remaining(plan, 1000.0, 0) == 600
    assert remaining(plan, 9999.0, 10) == 0


@pytest.mark.parametrize("pace", [0.5, 1.0, 3.0])
def test_remaining_time_scales_with_the_observed_pace(pace: float) -> None:
    plan = RunPlan(1000.0, None, STEPS)
    found = remaining(plan, 1000.0 + 5 * 60 * pace, 5)
    smoothed = (300 * pace + SMOOTHING_S) / (300 + SMOOTHING_S)
    assert found == pytest.approx(300 * smoothed)
    assert abs(found - 300 * pace) <= abs(300 - 300 * pace)


def test_a_budget_bounds_it() -> None:
    plan = RunPlan(1000.0, 1200.0, STEPS)
    assert remaining(plan, 1100.0, 1) == 100
    assert remaining(plan, 1300.0, 1) == 0


@pytest.mark.parametrize(("now", "fits"), [(1000.0, True), (1140.0, True), (1141.0, False)])
def test_a_step_that_would_end_too_late_does_not_begin(now: float, fits: bool) -> None:
    assert RunPlan(1000.0, 1200.0, STEPS).fits([Path("r0.json")], now) is fits
    assert RunPlan(1000.0, None, STEPS).fits([Path("r0.json")], now)


@pytest.mark.parametrize("text", ["", "[]", '{"started": 1}', "{"])
def test_unreadable_or_missing_plan_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    assert read_run_plan(tmp_path / "plan.json") is None
    assert read_run_plan(tmp_path / "nothing") is None
    assert read_run_plan(Path()) is None


def test_a_file_from_before_the_run_is_not_done(tmp_path: Path) -> None:
    file = tmp_path / "r0.json"
    plan = RunPlan(1000.0, None, {str(file): 1.0})
    assert not plan.is_done(file)
    for at, is_done in ((999.0, False), (1000.0, True), (1001.0, True)):
        file.touch()
        os.utime(file, (at, at))
        assert plan.is_done(file) is is_done
