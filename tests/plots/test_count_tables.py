"""Tables of batch counts and of policies: numbers, statuses and notes."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dynbatch.harness.planning.artifacts import (
    Choices,
    PlannedTrial,
    build_choices,
    plan_artifact,
    plan_counts,
)
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import SCALES, expand, list_experiment_names
from dynbatch.plots.experiment import Experiment, load_experiment
from dynbatch.plots.published import read_published
from dynbatch.plots.tables.cells import Table, format_exact
from tests.support.experiments import Load, build_tables, select_number
from tests.support.made_up_counts import failed_row, write_made_up_counts

Row = dict[str, Any]
compose = cache(Composer)
TABLES = (
    *("edbatch_fig9_counts", "edbatch_generalisation", "edbatch_learning"),
    *("policies_batch_counts", "policies_ratios", "policies_sequences"),
)
LATTICE = {"model": "lattice_lstm", "mode": "train"}
REASON = "not finished within limits.time_s=600"


def fail(row: Row, **wanted: object) -> Row:
    """Fail the counts with these settings."""
    is_wanted = all(row[key] == value for key, value in wanted.items())
    return failed_row(row, "timeout", REASON) if is_wanted else row


def load_counted(
    name: str, choices: Choices, change: Callable[[Row], Row] = lambda row: row
) -> Experiment:
    """Return an experiment with made-up counts, each of which `change` may replace."""
    write_made_up_counts(plan_counts(name, choices), choices.results_dir, change)
    return load_planned(name, choices)


def load_planned(name: str, choices: Choices) -> Experiment:
    """Return an experiment with the stored counts."""
    trials = plan_artifact(name, choices, compose(choices.conf_dir))
    return load_experiment(name, choices, trials, plan_counts(name, choices))


def build_table(experiment: Experiment) -> Table:
    (table,) = build_tables(experiment)
    return table


def read_counts(choices: Choices, name: str, **wanted: object) -> list[Row]:
    """Return the stored counts with these values, each once."""
    paths = [sweep.build_path(choices.results_dir) for sweep in plan_counts(name, choices)]
    rows = [row for path in paths for row in json.loads(path.read_text(encoding="utf-8"))]
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return list({row["count_id"]: row for row in found}.values())


def test_counts_of_the_released_graph_and_their_simulation(choices: Choices) -> None:
    name = "edbatch_fig9_counts"
    numbers = build_table(load_counted(name, choices)).numbers
    point = {"model": "lattice_lstm", "batch_size": 32}
    (row,) = read_counts(choices, name, **point, policy="agenda")
    ours, theirs = (
        partial(select_number, numbers[numbers.setting == setting], **point)
        for setting in ("counted", "independent simulation")
    )
    assert ours(policy="agenda").value == row["n_batches_ed"]
    assert ours(policy="parameters").value == 3
    assert ours(policy="lower bound").value == row["lower_bound_ed"]
    assert theirs(policy="agenda").value == 1302
    assert theirs(policy="lower bound").value == 516
    assert theirs(policy="nodes").value == 11625


def test_a_simulation_has_no_fewer_batches_than_its_bound() -> None:
    found = read_published("simulated_batch_counts")
    bounds = found[found.quantity == "lower_bound"][["model", "batch_size", "value"]]
    batches = found[found.quantity == "n_batches"]
    both = batches.merge(bounds, on=["model", "batch_size"], validate="m:1")
    assert len(both) == len(batches) > 0
    assert (both.value_x >= both.value_y).all()


def test_ratios_and_their_mean(choices: Choices) -> None:
    name = "policies_ratios"
    table = build_table(load_counted(name, choices))
    numbers = table.numbers
    agenda = {"model": "lattice_gru", "policy": "agenda"}
    rows = read_counts(choices, name, **agenda)
    ratios = {row["batch_size"]: row["n_batches_ed"] / row["lower_bound_ed"] for row in rows}
    for size, ratio in ratios.items():
        assert select_number(numbers, **agenda, batch_size=size).value == pytest.approx(ratio)
    mean = select_number(numbers, **agenda, role="mean").value
    assert mean == pytest.approx(statistics.fmean(ratios.values()))
    printed = table.cells["batches / lower bound", "agenda"]
    assert printed["Lattice-GRU", "mean", ""] == format_exact(mean)
    assert "depth" not in set(numbers.policy), "counted for another experiment"


def test_a_file_too_small_for_a_mini_batch_has_no_row_for_it(choices: Choices) -> None:
    choices = replace(choices, scale="paper")
    numbers = build_table(load_counted("policies_ratios", choices)).numbers
    rows = numbers[(numbers.model == "lattice_lstm") & (numbers.batch_size == 128)]
    assert set(rows["split"]) == {"train", "test"}  # dev has 113
    assert set(numbers.status) == {"ok"}


def test_a_note_has_the_settings_and_seeds_of_learning(choices: Choices) -> None:
    table = build_table(load_counted("edbatch_learning", choices))
    assert any("at most 1000 trials, seeds 0, 1, 2, 3, 4" in note for note in table.notes)


@pytest.mark.parametrize("name", TABLES)
def test_a_failed_count_has_its_status_and_one_note(name: str, choices: Choices) -> None:
    model = "bilstm" if name == "policies_sequences" else "lattice_gru"
    slow = partial(fail, policy="fsm_sort", model=model)
    table = build_table(load_counted(name, choices, slow))
    failed = table.numbers[~table.numbers.status.isin(["ok", "published"])]
    assert set(failed.status) == {"timeout"}
    assert set(failed.model) == {model}
    assert "policy" not in failed or set(failed.policy) == {"fsm_sort"}
    assert failed.value.isna().all()
    assert table.notes.count(f"fsm_sort: timeout: {REASON}") == 1


def test_facts_of_the_graph_remain_if_the_first_policy_failed(choices: Choices) -> None:
    experiment = load_counted("edbatch_fig9_counts", choices, partial(fail, policy="depth"))
    numbers = build_table(experiment).numbers
    counted = numbers[numbers.setting == "counted"]
    assert set(counted[counted.policy == "depth"].status) == {"timeout"}
    assert set(counted[counted.role == "lower_bound"].status) == {"ok"}


def test_seeds_that_were_not_counted_are_left_out(choices: Choices) -> None:
    name = "policies_batch_counts"
    load_counted(name, choices)
    first, second = plan_counts(name, choices)  # seed 0 and all other policies; seed 1
    second.build_path(choices.results_dir).unlink()
    numbers = build_table(load_planned(name, choices)).numbers
    assert set(numbers.status) == {"ok"}
    first.build_path(choices.results_dir).unlink()
    numbers = build_table(load_planned(name, choices)).numbers
    assert set(numbers.status) == {"not measured"}


def test_the_note_on_mini_batches_is_that_of_counts_with_a_record(choices: Choices) -> None:
    name = "policies_batch_counts"
    load_counted(name, choices, lambda row: row | {"offset": 3})
    first, _ = plan_counts(name, choices)
    first.build_path(choices.results_dir).unlink()
    (note,) = (n for n in build_table(load_planned(name, choices)).notes if "mini-batch is" in n)
    assert note.endswith("instances of train from 3 on, in file order.")


def test_learning_has_all_its_trials_at_every_scale(choices: Choices) -> None:
    for name in list_experiment_names():
        for scale in SCALES:
            for sweep in plan_counts(name, replace(choices, scale=scale)):
                assert "learning.trials" not in sweep.settings, name


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["policies_timed_vertices", "policies_timed_operators"])
def test_only_the_policy_differs_within_a_model_and_a_mode(name: str, scale: str) -> None:
    groups: dict[tuple[str, str], list[Row]] = {}
    for settings in expand(name, scale).settings:
        groups.setdefault((settings["model"], settings["mode"]), []).append(dict(settings))
    for group in groups.values():
        policies = {settings.pop("policy") for settings in group}
        assert "critical_share" in policies, "the base"
        assert len(policies) > 1
        seedless = [{k: v for k, v in one.items() if k != "learning.seed"} for one in group]
        assert all(settings == seedless[0] for settings in seedless)
        assert seedless[0]["system"] == "vertex"


def test_policies_are_compared_with_the_base_of_their_model(load: Load) -> None:
    def change(trial: PlannedTrial, _round: int) -> Row:
        settings = trial.settings
        slow = {"agenda": 2.0, "critical_share": 1.0}.get(settings["policy"], 4.0)
        return {"passes_s": (0.040 * slow,) * 3, "n_batches": 10.0 * slow, "lower_bound": 10.0}

    experiment = load("policies_timed_vertices", change, "medium")
    numbers = build_table(experiment).numbers
    over_bound = select_number(numbers, **LATTICE, policy="agenda", quantity="over_bound")
    assert over_bound.value == 2.0
    ratios = numbers[numbers.quantity == "mini_batch_ms over base"]
    assert select_number(ratios, **LATTICE, policy="agenda").value == pytest.approx(2.0)
    assert select_number(ratios, **LATTICE, policy="critical_share").value == 1.0


def test_single_cells_run_on_the_cpu_whatever_the_device(
    conf_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynbatch.harness.planning.nodes.has_cuda_device", lambda: True)
    choices = build_choices({"scale": "paper", "device": "cuda", "conf_dir": conf_dir}, {})
    composer = Composer(conf_dir)
    for name, device in (("edbatch_table2", "cpu"), ("edbatch_fig8", "cuda")):
        assert {t.spec.device for t in plan_artifact(name, choices, composer)} == {device}


def test_a_mean_over_a_row_without_a_number_has_its_status(choices: Choices) -> None:
    point = {"model": "lattice_gru", "policy": "agenda"}
    name = "policies_ratios"
    complete = build_table(load_counted(name, choices)).numbers
    *_, last = complete[(complete.role != "mean") & (complete.model == "lattice_gru")].batch_size
    change = partial(fail, **point, batch_size=int(last))
    numbers = build_table(load_counted(name, choices, change)).numbers
    own = numbers[(numbers.model == point["model"]) & (numbers.policy == point["policy"])]
    assert list(own[own.role != "mean"].status) == ["ok", "timeout"]
    mean = select_number(own, role="mean")
    assert mean.status == "timeout"
    assert pd.isna(mean.value)
    other = select_number(numbers, model="lattice_gru", policy="fsm_sort", role="mean")
    assert other.status == "ok"
