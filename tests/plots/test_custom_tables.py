"""Numbers of tables with their own modules: auto, walks, data movement, and swapped types."""

from __future__ import annotations

from typing import Any

import pytest

from dynbatch.harness.contracts.choice import Candidate, Choice
from dynbatch.harness.planning.artifacts import Choices, PlannedTrial
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.plots.experiment import load_experiment
from dynbatch.plots.tables.swapped_types import (
    IN_SEQUENCE,
    SIDE_BY_SIDE,
    build,
    build_graph,
    count_batches,
)
from dynbatch.plots.tables.walks import SHARE
from tests.support.exact_minimum import minimum_batches
from tests.support.experiments import Load, build_tables, select_number

AUTO = "auto_choice"
WALKED = "Tree-LSTM training, hidden 256"


def change_policy(trial: PlannedTrial, round_: int) -> dict[str, Any]:
    seconds = {"auto": 1.03, "agenda": 2.0, "critical_share": 1.0}[str(trial.settings["policy"])]
    changes: dict[str, Any] = {"instances_per_s": 1 / seconds / (1 + round_)}
    if trial.settings["policy"] == "auto":
        policy = "frontier" if round_ < 2 else "depth"
        chosen = Candidate(policy=policy, granularity="vertex", tried_s=1.0)
        other = Candidate(policy="agenda", granularity="operator", tried_s=2.0)
        changes["policy_choice"] = Choice(candidates=(other, chosen), n_mini_batches=1, n_tries=3)
        changes["policy_search_s"] = 1.5 + round_
    return changes


@pytest.mark.parametrize(
    ("scale", "chosen", "search_s"),
    [
        ("smoke", "frontier, vertices (1 of 1)", 1.5),
        ("medium", "frontier, vertices (2 of 3); depth, vertices (1 of 3)", 2.5),
    ],
)
def test_auto_is_compared_with_the_best_fixed_choice(
    load: Load, scale: str, chosen: str, search_s: float
) -> None:
    experiment = load(AUTO, change_policy, scale)
    (table,) = build_tables(experiment)
    for setting, numbers in table.numbers.groupby("setting"):
        auto = select_number(numbers, policy="auto")
        assert (auto.chosen, auto.policy_search_s, auto.granularity) == (chosen, search_s, "")
        best = select_number(numbers, is_best=True)
        assert (best.policy, best.granularity) == ("critical_share", "vertex")
        assert select_number(numbers, quantity="excess_percent").value == pytest.approx(3.0)
        assert table.cells.loc[setting, "excess time of auto (%)"].startswith("+3.0")
        assert table.cells.loc[setting, "best fixed choice"] == "critical_share, vertices"


FACTORS = {"fusion": 2.0, "hoisting": 0.8, "policy": 1.5}


def change_switches(trial: PlannedTrial, _: int) -> dict[str, Any]:
    """Multiply the speed by a factor for each switch that is on."""
    speed = {"products": 4000.0, "products_cut": 200.0}.get(trial.settings["system"], 1000.0)
    for option, factor in FACTORS.items():
        value = trial.settings.get(f"system.options.{option}")
        is_on = trial.settings["system"] == "vertex" if value is None else value is not False
        is_on &= value != "agenda"
        speed *= factor if is_on and not trial.settings["system"].startswith("products") else 1.0
    return {"instances_per_s": speed}


@pytest.mark.slow
def test_each_way_to_take_a_step_has_its_factor(load: Load) -> None:
    experiment = load("switch_walks", change_switches, "medium")
    (table,) = build_tables(experiment)
    numbers = table.numbers
    assert set(numbers.status) == {"ok"}
    steps = numbers[numbers.walk == "cavs_dynet"]
    start = steps[steps.step == 0]
    assert list(start.quantity) == ["mini_batch_ms", SHARE]
    assert select_number(start, quantity=SHARE).value == pytest.approx(25)
    for way in ("added_first", "removed_last"):
        factors = steps[steps.quantity == way]
        options = factors.switch.str.partition(":")[0]
        expected = [FACTORS.get(option, 1.0) for option in options]
        assert list(factors.value) == pytest.approx(expected)
    last = steps[steps.step == steps.step.max()]
    assert select_number(last, quantity="so_far").value == pytest.approx(2.4)
    assert select_number(last, quantity=SHARE).value == pytest.approx(60)
    assert table.cells.index[0] == "Cavs DyNet preset"
    assert table.cells.index[-2].endswith(" = Vertex engine")
    assert table.cells.loc["matmul bound", (WALKED, "ms per mini-batch")] == "16.0"


def test_steps_outside_the_scale_are_not_shown(load: Load) -> None:
    (table,) = build_tables(load("switch_walks", change_switches))
    numbers = table.numbers
    assert select_number(numbers, step=1, quantity="so_far").status == "ok"
    assert set(numbers.step) == {0, 1, 8}
    assert SHARE not in set(numbers.quantity)  # no bound at this scale
    assert select_number(numbers, step=8, quantity="so_far").value == pytest.approx(2.4)


def counts_memory(trial: PlannedTrial) -> bool:
    return any(trial.settings.get(f"{add}system.options.profile") is True for add in ("", "+"))


def change_profile(trial: PlannedTrial, _: int) -> dict[str, Any]:
    """Return times of 0.25 s per mini-batch, or longer if memory operations are counted."""
    is_profiled = counts_memory(trial)
    phases = {"construct": 0.01, "schedule": 0.01, "forward": 0.05, "backward": 0.15}
    speed = trial.settings["batch_size"] / (0.35 if is_profiled else 0.25)
    return {
        "phases_s": phases,
        "data_movement_fraction": 0.25 if is_profiled else None,
        "instances_per_s": speed,
        "warnings": ("background_load",) if is_profiled else (),
    }


def test_moving_and_arithmetic_are_parts_of_the_computation(load: Load) -> None:
    (table,) = build_tables(load("cavs_table2", change_profile, "medium"))
    n_batches = 8544 / 64
    for mode in ("train", "infer"):
        for system in ("cavs", "dynet"):
            is_shown = (table.numbers["mode"] == mode) & (table.numbers.system == system)
            shown = table.numbers[is_shown]
            moving = select_number(shown, quantity="moving_s")
            arithmetic = select_number(shown, quantity="arithmetic_s")
            assert moving.value == pytest.approx(0.25 * 0.2 * n_batches)
            assert arithmetic.value == pytest.approx((0.23 - 0.25 * 0.2) * n_batches)
            assert (moving.warnings, arithmetic.warnings) == ("background_load", "background_load")
            whole = select_number(shown, quantity="computation_s")
            assert moving.value + arithmetic.value == pytest.approx(whole.value)
            assert whole.warnings == ""
    row = table.cells.loc[64]
    assert row["memory, training", "DyNet"].startswith("6.68")
    assert row["computation, training", "DyNet"].startswith("24.0")
    assert row["computation, inference", "paper: Cavs"] == "1.3"
    assert list(table.cells.index) == [16, 32, 64, 128, 256]
    ours = [label for label in table.cells if not label[1].startswith("paper: ")]
    assert set(table.cells.loc[256, ours]) == {"\N{EN DASH}"}


def test_computation_is_an_upper_bound_if_copies_were_not_timed(load: Load) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        is_profiled = counts_memory(trial)
        is_wheel = trial.settings["system"] == "dynet" and is_profiled
        return {"status": "unsupported"} if is_wheel else change_profile(trial, round_)

    (table,) = build_tables(load("cavs_table2", change, "medium"))
    dynet = table.numbers[table.numbers.system == "dynet"]
    for quantity in ("moving_s", "arithmetic_s"):
        assert set(dynet[dynet.quantity == quantity].status) == {"unsupported"}
    row = table.cells.loc[64]
    assert row["memory, training", "DyNet"] == "unsupported"
    assert row["computation, training", "DyNet"] == "\N{LESS-THAN OR EQUAL TO} 30.7"


def test_a_failed_profile_leaves_no_arithmetic(load: Load) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        is_profiled = counts_memory(trial)
        return {"status": "oom"} if is_profiled and round_ else change_profile(trial, round_)

    (table,) = build_tables(load("cavs_table2", change, "medium"))
    cavs = table.numbers[table.numbers.system == "cavs"]
    assert set(cavs[cavs.quantity == "moving_s"].status) == {"oom"}
    assert set(cavs[cavs.quantity == "arithmetic_s"].status) == {"oom"}
    assert set(cavs[cavs.quantity == "computation_s"].status) == {"ok"}


# --- Fig. 10 of ED-Batch ---


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("name", [SIDE_BY_SIDE, IN_SEQUENCE])
def test_levels_of_chains_reach_the_minimum(name: str, depth: int) -> None:
    graph = build_graph(name, depth)
    assert graph.n_vertices == 4 * depth
    assert count_batches("critical_share", graph, 1) == minimum_batches(graph)


@pytest.mark.parametrize("policy", ["fsm_base", "fsm_max", "fsm_sort"])
def test_state_machines_need_more_when_the_phase_decides(policy: str) -> None:
    graph = build_graph(IN_SEQUENCE, 4)
    assert minimum_batches(graph) == compute_lower_bound(graph)
    assert count_batches(policy, graph, 2) > compute_lower_bound(graph)


def test_the_table_has_all_policies_and_the_bound(choices: Choices) -> None:
    (table,) = build(load_experiment("edbatch_fig10", choices, (), ()))
    found = table.numbers.set_index(["graph", "length"])
    bound = found.pop("lower bound")
    assert (found.ge(bound, axis=0)).all(axis=None)
    assert found.critical_share[SIDE_BY_SIDE].tolist() == [2 * d + 1 for d in (2, 4, 8, 16, 32)]
    assert list(table.cells) == [
        *("depth", "agenda", "sufficient", "fsm base", "fsm max", "fsm sort"),
        *("critical share", "lower bound"),
    ]
