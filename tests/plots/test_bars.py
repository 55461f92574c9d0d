"""Bars of experiments: parts of a time per system, and the steps of a walk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dynbatch.harness.planning.artifacts import Choices, PlannedTrial
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.figures import bars
from dynbatch.plots.figures.bars import Bar
from tests.support.experiments import Load, read_rows, run_draw, select_number

pytestmark = pytest.mark.usefixtures("without_pixels")

OPTIONS = "system.options."


def list_rows(experiment: Experiment) -> dict[str, list[Bar]]:
    """Return the bars of all panels of a figure of parts, by the title of their panel."""
    rows: dict[str, list[Bar]] = {}
    for title, found in bars.arrange_parts(experiment, bars.evaluate_parts(experiment))[0]:
        rows.setdefault(title.partition(", strat")[0].removesuffix(", systems"), []).extend(found)
    return rows


def test_parts_add_up_to_the_mini_batch(load: Load) -> None:
    experiment = load("edbatch_fig8")
    (bar, *_) = list_rows(experiment)["Tree-LSTM"]
    assert bar.label == "Vertex engine"
    assert list(bar.lengths) == ["construction", "scheduling", "execution"]
    rows = experiment.rows.query("system == 'vertex' and model == 'tree_lstm'")
    assert sum(bar.lengths.values()) == pytest.approx(rows.mini_batch_ms.median())
    assert bar.text == f"{sum(bar.lengths.values()):.3g}"


def test_scheduling_that_is_not_separable_is_in_the_next_part(load: Load) -> None:
    experiment = load("edbatch_fig8", lambda *_: {"phases_s": {"construct": 0.001}})
    for bar in list_rows(experiment)["Tree-LSTM"]:
        assert list(bar.lengths) == ["construction", "execution" + bars.JOINED]
    schedule = bars.evaluate_parts(experiment).query("quantity == 'schedule_ms'")
    assert set(schedule.status) == {"not separable"}


def test_parts_of_a_sentence_are_those_of_a_mini_batch_by_its_size(load: Load) -> None:
    phases = {"construct": 1.6, "forward": 3.2, "backward": 4.8, "update": 0.16}
    experiment = load("dynet_fig2", lambda *_: {"phases_s": phases})
    found = bars.evaluate_parts(experiment)
    number = select_number(found, system="dynet_manual", quantity="forward_ms_per_instance")
    assert number.value == pytest.approx(200)
    by_label = {bar.label: bar for bar in list_rows(experiment)["With batching"]}
    bar = by_label["DyNet (Python), manual and agenda"]
    lengths = {"construction": 100, "forward" + bars.JOINED: 200, "backward": 300, "update": 10}
    assert bar.lengths == pytest.approx(lengths)
    assert bar.text == "610"


def test_sections_have_their_systems_and_the_papers_totals(load: Load) -> None:
    rows = list_rows(load("dynet_fig2"))
    found = [bar.label for bar in rows["Without batching"]]
    assert found == ["DyNet (C++), no batching", "DyNet off"]
    paper = [[bar.text for bar in found] for title, found in rows.items() if "Paper" in title]
    assert paper == [["193", "16.9", "13.3"], ["54.6", "5.03", "2.86"]]


def test_a_failed_trial_has_its_status(load: Load) -> None:
    def change(trial: PlannedTrial, _: int) -> dict[str, Any]:
        failed = {"status": "oom", "reason": "made up", "phases_s": {}}
        is_failed = trial.settings["system"] == "edbatch" or (
            trial.settings["system"] == "dynet" and trial.settings["model"] == "tree_lstm"
        )
        return failed if is_failed else {}

    experiment = load("edbatch_fig8", change)
    texts = {bar.label: bar.text for bar in list_rows(experiment)["Tree-LSTM"]}
    assert texts["DyNet agenda"] == "oom"
    assert texts["ED-Batch preset"] == "oom"
    found = bars.evaluate_parts(experiment)
    assert set(found[found.system == "edbatch"].status) == {"oom"}


def test_steps_are_relative_to_the_start_of_the_walk(load: Load) -> None:
    """Every changed option saves a tenth of the time at the start; later rounds are slower."""

    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        options = sum(key.lstrip("+").startswith(OPTIONS) for key in trial.settings)
        n_steps = 8 if trial.settings["system"] == "vertex" else options
        return {"instances_per_s": trial.settings["batch_size"] / (10 - n_steps) / (1 + round_)}

    found = bars.evaluate_steps(load("ablation_steps", change, "medium"))
    relative = found[found.quantity == bars.OVER_START]
    assert set(relative.setting) == {"Tree-LSTM"}, "other workloads are not planned at this scale"
    assert list(relative.step) == list(range(9))
    assert list(relative.value) == pytest.approx([1 - 0.1 * n for n in range(9)])
    assert list(relative.low) == pytest.approx(list(relative.high)), "ratios are within rounds"
    times = found[found.quantity == "mini_batch_ms"]
    assert list(times.value) == pytest.approx([2e3 * (10 - n) for n in range(9)])


def test_a_step_without_a_number_has_its_status(load: Load, choices: Choices) -> None:
    def change(trial: PlannedTrial, _: int) -> dict[str, Any] | None:
        if trial.settings["system"] == "vertex":
            return None
        is_second = sum(key.lstrip("+").startswith(OPTIONS) for key in trial.settings) == 2
        return {"status": "oom", "reason": "made up", "instances_per_s": None} if is_second else {}

    load("ablation_steps", change, "medium")
    assert run_draw("ablation_steps", replace(choices, scale="medium")) == 0
    rows = read_rows(choices.results_dir / "figures/ablation_steps.csv")
    statuses = {int(row["step"]): row["status"] for row in rows if "over" in row["quantity"]}
    assert (statuses[2], statuses[8], statuses[1]) == ("oom", "not measured", "ok")
