"""Dots: batches of policies over their bound. Scatter: achieved rates under measured roofs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dynbatch.harness.planning.artifacts import Choices, PlannedTrial, plan_counts
from dynbatch.harness.records.numbers import merge_seeds
from dynbatch.harness.records.tidy import TYPE_SEED
from dynbatch.plots.experiment import Experiment, load_experiment
from dynbatch.plots.figures import dots, scatter
from tests.support.experiments import Load, read_rows, run_draw, select_number
from tests.support.made_up_counts import write_made_up_counts

pytestmark = pytest.mark.usefixtures("without_pixels")

FIG9 = "edbatch_fig9"


@pytest.fixture
def counted(choices: Choices) -> Experiment:
    sweeps = plan_counts(FIG9, choices)
    write_made_up_counts(sweeps, choices.results_dir)
    return load_experiment(FIG9, choices, (), sweeps)


def test_dots_are_the_counts_of_the_released_graph(counted: Experiment) -> None:
    _, found = dots.draw(counted)
    assert set(found.batch_size) == {32}
    families = [dots.Family(**family) for family in counted.declaration.figure["families"]]
    trees = merge_seeds(found)[lambda f: f.model == "tree_lstm"]
    _, bars = dots.build_panel("Tree-LSTM", families, trees)
    rows = counted.counts.query(
        "graph == 'released' and model == 'tree_lstm' and batch_size == 32 and mini_batch == 0"
    )
    policies = [policy for family in families for policy in family.policies]
    medians = rows.groupby("policy").n_batches.median()
    assert [bar.text for bar in bars] == [f"{medians[policy]:g}" for policy in policies]
    ratios = (rows.n_batches / rows.lower_bound).groupby(rows.policy).median()
    assert [sum(bar.lengths.values()) for bar in bars] == pytest.approx(list(ratios[policies]))


def test_a_learned_policy_has_a_number_for_each_seed(counted: Experiment) -> None:
    _, found = dots.draw(counted)
    point = {"model": "mv_rnn", "policy": "fsm_sort", "quantity": "n_batches"}
    number = select_number(merge_seeds(found), **point)
    assert (number.n_seeds, number.high - number.low) == (5, 12), "seeds differ by 3 batches each"
    assert len(found.query("model == 'mv_rnn' and policy == 'depth'")) == 3


def test_dots_have_one_split_and_the_types_of_all_seeds(choices: Choices) -> None:
    many = replace(choices, scale="paper")
    sweeps = plan_counts(FIG9, many)
    write_made_up_counts(sweeps, many.results_dir)
    _, found = dots.draw(load_experiment(FIG9, many, (), sweeps))
    found = found[(found.model == "tree_lstm_2type") & (found.quantity == "n_batches")]
    assert sorted(found[found.policy == "agenda"][TYPE_SEED]) == [0, 1, 2, 3, 4]
    (merged,) = merge_seeds(found[found.policy == "fsm_sort"]).itertuples()
    assert merged.n_seeds == 25


def test_counts_that_are_not_there_are_named(choices: Choices) -> None:
    experiment = load_experiment(FIG9, choices, (), plan_counts(FIG9, choices))
    figure, numbers = dots.draw(experiment)
    assert numbers.value.notna().sum() == 0
    assert {text.get_text() for text in figure.axes[0].texts} == {"not measured"}


def rate(trial: PlannedTrial, _: int) -> dict[str, Any]:
    system, n_bytes = trial.settings["system"], trial.settings.get("system.options.n_bytes")
    phases = {"forward": 1.0}
    if system == "copies":
        return {"phases_s": phases, "bytes_touched": 4e10 if n_bytes == 131072 else 1e10}
    n_flop = {"products": 9e10, "vertex": 7e10}.get(system, 1e10)
    touched = None if system == "products" else 1e10
    return {"phases_s": phases, "n_flop": n_flop, "bytes_touched": touched}


def test_roofs_and_marks_are_of_the_same_machine_and_run(choices: Choices, load: Load) -> None:
    experiment = load("roofline", rate)
    _, found = scatter.draw(experiment)
    roofs = found[found["what"] == "roof"].set_index("of")
    assert dict(roofs.value) == pytest.approx(
        {"matmuls only": 90.0, "memory": 10.0, "a core's cache": 40.0}
    )
    assert run_draw("roofline", choices) == 0
    rows = read_rows(choices.results_dir / "figures/roofline.csv")
    marks = {row["of"]: float(row["value"]) for row in rows if row["quantity"] == "gflop_per_s"}
    assert marks["Tree-LSTM training, h 64"] == pytest.approx(70.0)
    number = select_number(found, of="Tree-LSTM training, h 64", quantity="flop_per_byte")
    assert number.value == pytest.approx(7.0)


def test_each_name_appears_in_the_figure_once(load: Load) -> None:
    figure, numbers = scatter.draw(load("roofline", rate))
    texts = [text.get_text() for text in figure.axes[0].texts]
    shown = numbers[numbers["what"] == "trial"].drop_duplicates("of")
    for row in shown.itertuples():
        assert texts.count(row.of if row.status == "ok" else f"{row.of}: {row.status}") == 1


def test_roofs_and_marks_without_numbers_are_left_out(load: Load) -> None:
    figure, numbers = scatter.draw(load("roofline", lambda *_: None))
    assert figure.axes[0].get_lines() == []
    assert set(numbers.status) == {"not measured"}
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert "DyNet strategy, Tree-LSTM training: not measured" in texts
