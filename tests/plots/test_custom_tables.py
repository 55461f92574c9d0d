"""Numbers of tables with their own modules: walks, data movement, swapped types, answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.artifacts import Choices, PlannedTrial
from dynbatch.harness.planning.grid import EXPERIMENT, list_experiment_names
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.plots.captions import describe_warnings
from dynbatch.plots.experiment import Experiment, load_experiment
from dynbatch.plots.tables.answers import (
    arrange,
    evaluate_answers,
    evaluate_strategies,
    list_unplanned,
)
from dynbatch.plots.tables.swapped_types import (
    IN_SEQUENCE,
    SIDE_BY_SIDE,
    build,
    build_graph,
    count_batches,
)
from dynbatch.plots.tables.walks import SHARE
from tests.support.experiments import Load, build_tables, change_systems, select_number
from tests.support.random_graphs import minimum_batches

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
    (table,) = build_tables(load("switch_walks", change_switches, "medium"))
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
    assert table.cells.index[-1].endswith(" = Vertex engine")


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
    assert table.cells.loc[64]["computation, inference", "paper: Cavs"] == "1.3"
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


# --- answers ---

HEADLINES = [name for name in list_experiment_names() if name.startswith("headline_")]
LATTICE, TREES = "headline_lattice_lstm", "headline_tree_lstm_inference"


def load_headlines(load: Load, speeds: dict[str, dict[str, float]]) -> Experiment:
    """Load records of some headlines with speeds by headline and system, 100 for others."""

    def change(trial: PlannedTrial, _: int) -> dict[str, Any] | None:
        found = speeds.get(trial.settings[EXPERIMENT])
        return None if found is None else {"instances_per_s": found.get(trial.spec.system, 100.0)}

    return load("answers", change)


@pytest.mark.slow
def test_every_headline_answers_from_its_own_records(load: Load) -> None:
    speeds = {
        TREES: {"vertex": 300.0, "dynet_depth": 150.0},
        LATTICE: {"vertex": 90.0, "dynet": 180.0, "torch_levels": 30.0, "cavs_dynet": 900.0},
    }
    experiment = load_headlines(load, speeds)
    # Systems of one framework share a package, but made-up systems do not.
    experiment = replace(experiment, systems=read_systems(CONF_DIR))
    found = evaluate_answers(experiment)
    assert list(found.experiment.unique()) == HEADLINES
    trees = select_number(found, experiment=TREES, is_fastest_baseline=True)
    lattices = select_number(found, experiment=LATTICE, is_fastest_baseline=True)
    assert (trees.system, trees.value, trees.speedup) == ("dynet_depth", 150, 2)
    assert (lattices.system, lattices.value, lattices.speedup) == ("dynet", 180, 0.5)
    own = found[(found.experiment == TREES) & ~found.is_engine]
    assert trees.n_baselines == len(own) == own.system.nunique()
    assert set(own.framework) == {"DyNet", "PyTorch", "C++ by hand"}
    assert trees.n_frameworks == 3 < trees.n_baselines
    others = found[~found.experiment.isin(speeds)]
    assert set(others.status) == {"not measured"}
    assert set(others.n_baselines) == {0}
    cells = arrange(found)
    assert set(cells["engine (1/s)"][others.workload]) == {"not measured"}
    assert set(cells["fastest framework"][others.workload]) == {"\N{EN DASH}"}
    assert cells.loc[trees.workload, "speedup over it"] == "2.00"
    assert cells.loc[trees.workload, "speedup over C++"] == "3.00"
    ranked = found[(found.experiment == LATTICE) & found.value.notna()]
    assert list(ranked.value) == sorted(ranked.value, reverse=True)
    assert {"vertex", "dynet", "torch_levels"} <= set(ranked.system)
    assert "cavs_dynet" not in set(ranked.system), "strategies are not ranked"
    assert select_number(ranked, is_engine=True).speedup == 1
    strategies = evaluate_strategies(experiment)
    assert {experiment.kinds[name] for name in strategies.system} == {"strategy"}
    assert not strategies.is_engine.any()
    cavs = select_number(strategies, experiment=LATTICE, system="cavs_dynet")
    assert cavs.speedup == pytest.approx(0.1)


@pytest.mark.slow
def test_without_the_engine_no_baseline_is_the_fastest(load: Load) -> None:
    without_engine = change_systems({"vertex": None}, instances_per_s=100.0)
    found = evaluate_answers(load("answers", without_engine))
    assert not found.is_fastest_baseline.any()
    assert set(found.speedup_status) == {"not measured"}
    assert set(arrange(found)["speedup over it"]) == {"\N{EN DASH}"}


@pytest.mark.slow
def test_baselines_without_a_trial_are_in_the_csv(load: Load) -> None:
    experiment = load_headlines(load, {LATTICE: {"vertex": 90.0}})
    listed = list_unplanned(experiment)
    assert set(listed.status) == {"not planned"}
    found = evaluate_answers(experiment)
    pairs = set(zip(found.workload, found.system, strict=True))
    assert not pairs & set(zip(listed.workload, listed.system, strict=True))
    runnable = {one.name for one in experiment.systems if one.can_run("tree_lstm")}
    baselines = {name for name in runnable if experiment.kinds[name] == "framework"}
    planned = set(found[found.experiment == TREES].system)
    assert set(listed[listed.experiment == TREES].system) == baselines - planned
    (table,) = build_tables(experiment)
    assert (table.numbers.status == "not planned").sum() == len(listed) > 0


def test_a_headline_without_settings_is_rejected(load: Load) -> None:
    name = "cavs_short_table1_tree_lstm"
    experiment = load(name)
    experiment = replace(experiment, rows=experiment.rows.assign(experiment=name))
    with pytest.raises(ConfigError, match="a headline's table needs settings and throughput"):
        evaluate_answers(experiment)


def test_warnings_of_a_speedup_alone_are_named() -> None:
    rows = pd.DataFrame({"warnings": ["", "disturbed"], "speedup_warnings": ["wide_interval", ""]})
    assert "disturbed (1), wide_interval (1)" in describe_warnings(rows)
    assert "DyNet" not in describe_warnings(rows)


@pytest.mark.parametrize("doubted", ["Engine", "JAX"])
def test_a_speed_with_warnings_has_a_dagger(doubted: str) -> None:
    shared: dict[str, Any] = {"experiment": "x", "workload": "trees", "hidden_size": 64}
    shared |= {"batch_size": 8, "speedup_status": "ok", "speedup_n_rounds": 1}
    shared |= {"speedup": 2.0, "speedup_low": 2.0, "speedup_high": 2.0, "speedup_warnings": ""}
    both = pd.DataFrame(
        {
            **{**shared, "label": label, "framework": label, "value": value},
            "warnings": "drift" * (label == doubted),
        }
        for label, value in (("Engine", 100.0), ("JAX", 50.0))
    ).assign(is_engine=[True, False], status="ok")
    cells = arrange(both).loc["trees"]
    shown = (cells["engine (1/s)"], cells["its 1/s"], cells["speedup over it"])
    daggers = {"Engine": ("100\N{DAGGER}", "50.0"), "JAX": ("100", "50.0\N{DAGGER}")}
    assert shown == (*daggers[doubted], "2.00 (2.00 to 2.00)")
