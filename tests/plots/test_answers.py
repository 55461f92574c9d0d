"""Answers: the engine, all baselines and the strategies on each workload of the headlines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.artifacts import PlannedTrial
from dynbatch.harness.planning.grid import EXPERIMENT, list_experiment_names
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.tables import answers
from dynbatch.plots.tables.answers import (
    arrange,
    evaluate_answers,
    evaluate_strategies,
    list_unplanned,
)
from tests.support.experiments import Load, build_tables, change_systems, select_number

HEADLINES = [name for name in list_experiment_names() if name.startswith("headline_")]
LATTICE, TREES = "headline_lattice_lstm", "headline_tree_lstm_inference"


def load_headlines(load: Load, speeds: dict[str, dict[str, float]]) -> Experiment:
    """Load records of some headlines.

    Args:
        speeds: instances per second by headline and system; 100 for others.
    """

    def change(trial: PlannedTrial, _: int) -> dict[str, Any] | None:
        found = speeds.get(trial.settings[EXPERIMENT])
        return None if found is None else {"instances_per_s": found.get(trial.spec.system, 100.0)}

    return load("answers", change)


@pytest.mark.slow
def test_every_headline_answers_from_its_own_records(load: Load) -> None:
    speeds = {
        TREES: {"vertex": 300.0, "dynet_depth": 150.0},
        LATTICE: {"vertex": 90.0, "dynet": 180.0, "cavs_dynet": 900.0},
    }
    experiment = load_headlines(load, speeds)
    # Systems of one framework share a package, but made-up systems do not.
    experiment = replace(experiment, systems=read_systems(CONF_DIR))
    found = evaluate_answers(experiment)
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
    assert set(cells["fastest baseline"][others.workload]) == {"\N{EN DASH}"}
    assert cells.loc[trees.workload, "engine speedup"] == "2.00"


@pytest.mark.slow
def test_ranking_of_systems_excludes_strategies(load: Load) -> None:
    speeds = {"vertex": 90.0, "dynet": 180.0, "torch_levels": 30.0, "cavs_dynet": 900.0}
    experiment = load_headlines(load, {LATTICE: speeds})
    found = evaluate_answers(experiment)
    ranked = found[(found.experiment == LATTICE) & found.value.notna()]
    assert list(ranked.value) == sorted(ranked.value, reverse=True)
    assert ranked.system.iloc[0] == "dynet"
    assert {"vertex", "dynet", "torch_levels"} <= set(ranked.system)
    assert "cavs_dynet" not in set(ranked.system)
    assert select_number(ranked, is_engine=True).speedup == 1
    assert list(found.experiment.unique()) == HEADLINES
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
    assert set(arrange(found)["engine speedup"]) == {"\N{EN DASH}"}


@pytest.mark.slow
def test_answers_match_the_headline_tables(load: Load) -> None:
    """All headlines are included, and a workload has the ratio of its own table."""
    speeds = {name: {"vertex": 200.0 + k} for k, name in enumerate(HEADLINES)}
    found = evaluate_answers(load_headlines(load, speeds))
    assert set(found.experiment) == set(HEADLINES)
    for name in (LATTICE, TREES):
        engine = {"vertex": {"instances_per_s": speeds[name]["vertex"]}}
        tables = build_tables(load(name, change_systems(engine, instances_per_s=100.0)))
        (table,) = (table for table in tables if table.stem.endswith("_systems"))
        own = found[found.experiment == name]
        assert set(own[own.is_engine].value) == {speeds[name]["vertex"]}
        shown = table.numbers
        is_ratio = (shown.role == "best_baseline") & (shown.quantity == "instance_s over base")
        best = own[own.is_fastest_baseline]
        assert list(best.speedup) == list(shown[is_ratio].value)
        assert list(best.system) == list(shown[is_ratio].system)


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


def build_answer(label: str, framework: str, value: float, warnings: str = "") -> dict[str, Any]:
    ok = {"status": "ok", "speedup_status": "ok", "speedup_warnings": ""}
    speedups = dict.fromkeys(["speedup", "speedup_low", "speedup_high"], 100 / value)
    keys = {"workload": "trees", "hidden_size": 64, "batch_size": 8, "system": label.lower()}
    is_engine = framework == "Engine"
    own = {"label": label, "framework": framework, "is_engine": is_engine, "warnings": warnings}
    return {**keys, **own, "value": value, **ok, **speedups}


@pytest.mark.parametrize("doubted", ["Engine", "JAX"])
def test_frameworks_are_counted_and_a_speed_with_warnings_has_a_dagger(
    doubted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    systems = {"Engine": "Engine", "JAX": "JAX", "Levels": "PyTorch", "Eager": "PyTorch"}
    speeds = dict(zip(systems, (100.0, 50.0, 25.0, 20.0), strict=True))
    compared = pd.DataFrame(
        build_answer(label, framework, speeds[label], "drift" * (label == doubted))
        for label, framework in systems.items()
    )
    monkeypatch.setattr(answers, "compare_with_engine", lambda *_: compared)
    found = evaluate_answers(None)  # type: ignore[arg-type]
    assert set(found.n_baselines) == {3}
    assert set(found.n_frameworks) == {2}
    cells = arrange(found).loc["trees"]
    shown = (cells["engine (1/s)"], cells["baseline (1/s)"], cells["engine speedup"])
    daggers = {"Engine": ("100\N{DAGGER}", "50.0"), "JAX": ("100", "50.0\N{DAGGER}")}
    assert shown == (*daggers[doubted], "2.00 (2.00 to 2.00)")
