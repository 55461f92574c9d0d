"""Figures by kind: bars, dots, scatter, forest plot and heat map."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dynbatch.harness.planning.artifacts import Choices, PlannedTrial, plan_counts
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.records.numbers import merge_seeds
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.plots.experiment import Experiment, load_experiment
from dynbatch.plots.figures import bars, dots, forest, heat, page, scatter
from dynbatch.plots.tables.answers import BY_HAND
from dynbatch.plots.tables.cells import DAGGER
from tests.support.experiments import Load, change_systems, select_number

OPTIONS = "system.options."


def list_rows(experiment: Experiment) -> dict[str, list[bars.Bar]]:
    """Return the bars of all panels of a figure of parts, by the title of their panel."""
    rows: dict[str, list[bars.Bar]] = {}
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


def test_scheduling_that_is_not_separable_is_in_the_part_that_has_it(load: Load) -> None:
    """DyNet schedules while it computes, other frameworks before they do."""
    experiment = load("edbatch_fig8", lambda *_: {"phases_s": {"construct": 0.001}})
    experiment = replace(experiment, systems=read_systems(CONF_DIR))
    for bar in list_rows(experiment)["Tree-LSTM"]:
        assert list(bar.lengths) == ["construction", "execution"]
        is_late = bar.label.startswith("DyNet (")
        assert bar.joined == ("execution" if is_late else "construction"), bar.label
    schedule = bars.evaluate_parts(experiment).query("quantity == 'schedule_ms'")
    assert set(schedule.status) == {"not separable"}


def test_scheduling_is_in_the_next_part_if_construction_is_not_separable_either(
    load: Load,
) -> None:
    phases = {"construct": None, "schedule": None, "forward": 0.003}
    experiment = load("edbatch_fig8", lambda *_: {"phases_s": phases})
    for bar in list_rows(experiment)["Tree-LSTM"]:
        assert list(bar.lengths) == ["execution"]
        assert bar.joined == "execution", bar.label


def test_parts_of_a_sentence_are_those_of_a_mini_batch_by_its_size(load: Load) -> None:
    phases = {"construct": 1.6, "forward": 3.2, "backward": 4.8, "update": 0.16}
    experiment = load("dynet_fig2", lambda *_: {"phases_s": phases})
    found = bars.evaluate_parts(experiment)
    number = select_number(found, system="dynet_manual", quantity="forward_ms_per_instance")
    assert number.value == pytest.approx(200)
    by_label = {bar.label: bar for bar in list_rows(experiment)["With batching"]}
    bar = by_label["DyNet (Python), manual and agenda"]
    lengths = {"construction": 100, "forward": 200, "backward": 300, "update": 10}
    assert bar.lengths == pytest.approx(lengths)
    assert bar.text == "610"


def test_sections_have_their_systems_and_the_papers_totals(load: Load) -> None:
    rows = list_rows(load("dynet_fig2"))
    found = [bar.label for bar in rows["Without batching"]]
    assert found == ["DyNet (C++), no batching", "DyNet off"]
    paper = [[bar.text for bar in found] for title, found in rows.items() if "Paper" in title]
    assert paper == [["193", "16.9", "13.3"], ["54.6", "5.03", "2.86"]]


def test_a_failed_trial_has_its_status(load: Load) -> None:
    failed = {"status": "oom", "reason": "made up", "phases_s": {}}
    experiment = load("edbatch_fig8", change_systems(dict.fromkeys(("dynet", "edbatch"), failed)))
    texts = {bar.label: bar.text for bar in list_rows(experiment)["Tree-LSTM"]}
    assert texts["DyNet agenda"] == texts["ED-Batch preset"] == "oom"
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


def test_a_step_without_a_number_has_its_status(load: Load) -> None:
    def change(trial: PlannedTrial, _: int) -> dict[str, Any] | None:
        if trial.settings["system"] == "vertex":
            return None
        is_second = sum(key.lstrip("+").startswith(OPTIONS) for key in trial.settings) == 2
        return {"status": "oom", "reason": "made up", "instances_per_s": None} if is_second else {}

    _, found = bars.draw(load("ablation_steps", change, "medium"))
    statuses = found[found.quantity == bars.OVER_START].set_index("step").status
    assert list(statuses[[2, 8, 1]]) == ["oom", "not measured", "ok"]


# --- dots and scatter ---

FIG9 = "edbatch_fig9"


def test_dots_are_the_counts_of_the_released_graph(load: Load) -> None:
    counted = load(FIG9)
    _, found = dots.draw(counted)
    assert set(found.batch_size) == {32}
    families = [dots.Family(**family) for family in counted.declaration.figure["families"]]
    trees = merge_seeds(found)[lambda f: f.model == "tree_lstm"]
    _, drawn = dots.build_panel("Tree-LSTM", families, trees)
    rows = counted.counts.query(
        "graph == 'released' and model == 'tree_lstm' and batch_size == 32 and mini_batch == 0"
    )
    policies = [policy for family in families for policy in family.policies]
    medians = rows.groupby("policy").n_batches.median()
    assert [bar.text for bar in drawn] == [f"{medians[policy]:g}" for policy in policies]
    ratios = (rows.n_batches / rows.lower_bound).groupby(rows.policy).median()
    assert [sum(bar.lengths.values()) for bar in drawn] == pytest.approx(list(ratios[policies]))


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


def test_roofs_and_marks_are_of_the_same_machine_and_run(load: Load) -> None:
    _, found = scatter.draw(load("roofline", rate))
    roofs = found[found["what"] == "roof"].set_index("of")
    assert dict(roofs.value) == pytest.approx(
        {"matmuls only": 90.0, "memory": 10.0, "a core's cache": 40.0}
    )
    for quantity, value in (("gflop_per_s", 70.0), ("flop_per_byte", 7.0)):
        number = select_number(found, of="Tree-LSTM training, h 64", quantity=quantity)
        assert number.value == pytest.approx(value)


def test_roofs_and_marks_without_numbers_are_left_out(load: Load) -> None:
    figure, numbers = scatter.draw(load("roofline", lambda *_: None))
    assert figure.axes[0].get_lines() == []
    assert set(numbers.status) == {"not measured"}
    texts = {text.get_text() for text in figure.axes[0].texts}
    assert "DyNet strategy, Tree-LSTM training: not measured" in texts


# --- forest and heat ---

ENGINE, LEVELS, EAGER, JAX = "Engine", "PyTorch, level batching", "PyTorch, eager", "JAX"


def build_row(workload: str, label: str, speed: float, ends: tuple[float, float]) -> dict[str, Any]:
    engine = 100.0
    return {
        "workload": workload,
        "hidden_size": 64,
        "label": label,
        "framework": label.partition(",")[0],
        "is_engine": label == ENGINE,
        "value": speed,
        "speedup": engine / speed,
        "speedup_low": ends[0],
        "speedup_high": ends[1],
        "speedup_n_rounds": 6,
        "speedup_warnings": "drift" if label == JAX else "",
    }


@pytest.fixture
def answers() -> pd.DataFrame:
    return pd.DataFrame(
        [
            build_row("trees", ENGINE, 100.0, (1, 1)),
            build_row("trees", EAGER, 20.0, (4.8, 5.1)),
            build_row("trees", LEVELS, 50.0, (1.91, 2.19)),
            build_row("trees", JAX, 40.0, (2.4, 2.6)),
            build_row("chains", ENGINE, 100.0, (1, 1)),
            build_row("chains", JAX, 125.0, (0.795, 0.902)),
            {**build_row("lattices", JAX, 1.0, (1, 1)), "value": None, "speedup": None},
        ]
    )


def test_each_framework_has_its_fastest_baseline(answers: pd.DataFrame) -> None:
    by_hand = [build_row(name, BY_HAND, 200.0, (0.45, 0.55)) for name in ("trees", "parser")]
    marks = forest.select_marks(pd.concat([answers, pd.DataFrame(by_hand)], ignore_index=True))
    shown = {(row.workload, row.label): row.is_fastest for row in marks.itertuples()}
    frameworks = {("trees", LEVELS): True, ("trees", JAX): False, ("chains", JAX): True}
    assert shown == {**frameworks, ("trees", BY_HAND): False, ("parser", BY_HAND): False}


def test_speedups_over_the_fastest_framework_and_cpp_stand_in_a_row(answers: pd.DataFrame) -> None:
    by_hand = build_row("parser", BY_HAND, 200.0, (0.45, 0.55))
    axes = forest.draw_forest(
        pd.concat([answers, pd.DataFrame([by_hand])], ignore_index=True), 1.17
    ).axes[0]
    rows = [label.get_text() for label in axes.get_yticklabels()]
    texts: dict[str, list[str]] = {}
    for text in axes.texts:
        if text.xy[1] in range(len(rows)):
            texts.setdefault(rows[int(text.xy[1])], []).append(text.get_text())
    assert texts["trees"] == [LEVELS, "2.00 (1.91 to 2.19)", "\N{EN DASH}"]
    assert texts["parser"] == ["\N{EN DASH}", "0.50"]
    bold = {text.get_text() for text in axes.texts if text.get_fontweight() == "bold"}
    assert {"2.00 (1.91 to 2.19)", "0.50"} <= bold


def test_a_caption_of_one_round_names_no_median_and_no_interval(answers: pd.DataFrame) -> None:
    several = forest.describe_forest(answers, 1.17, "")
    assert "Numbers: median of 6 ratios within rounds, 95% interval of the median (" in several
    assert "Other marks: 6 rounds." in several
    once = answers.assign(speedup_n_rounds=1)
    caption = forest.describe_forest(once, 1.17, "")
    assert "Numbers: ratios within one round, so no interval." in caption
    assert "rounds" not in caption
    assert "atios within one round, so no interval." in heat.describe_heat(once, "")


def test_a_caption_fits_whatever_the_processor(answers: pd.DataFrame) -> None:
    rounds = [6, 6, 9, 12, 6, 3, 6]
    several = answers.assign(speedup_n_rounds=rounds, label=lambda f: f.label + ", variant")
    shared = "batch size 64, training and inference, float32, 1 CPU thread, "
    long_name = "NVIDIA RTX 6000 Ada Generation (AMD Ryzen Threadripper PRO 7995WX 96-Cores)"
    for name in ("AMD EPYC", "NVIDIA H200 (Intel Xeon)", long_name):
        caption = forest.describe_forest(several, 1.17, shared + name)
        assert len(page.wrap_caption(caption)) <= page.CAPTION_LINES
        assert caption.endswith(f"{name}.")
        assert "gray band" in caption.lower()
        assert ("without a number: 1" in caption) == (name != long_name)


def test_a_line_spans_the_interval_of_its_mark(answers: pd.DataFrame) -> None:
    axes = forest.draw_forest(answers, 1.17).axes[0]
    lines = [line for drawn in axes.collections for line in drawn.get_segments()]
    assert [list(line[:, 0]) for line in lines] == [[1.91, 2.19], [2.4, 2.6], [0.795, 0.902]]
    (first, second), (jax, _) = lines[0], lines[1]
    assert first[1] == second[1] != jax[1], "flat, a height for each framework"


def test_cells_are_speedups_and_grey_if_they_may_be_one(answers: pd.DataFrame) -> None:
    numbers = answers[~answers.is_engine]
    numbers = pd.concat([numbers, pd.DataFrame([build_row("chains", LEVELS, 99.0, (0.98, 1.02))])])
    axes = heat.draw_heat(numbers).axes[0]
    shares = np.asarray(axes.collections[0].get_array())
    places = {text.get_text(): text.get_position() for text in axes.texts}
    cells = {text: shares[int(y), int(x)] for text, (x, y) in places.items()}
    doubted = {
        f"{row.speedup:.2f}"
        for row in numbers.dropna(subset="speedup").itertuples()
        if row.speedup_warnings
    }
    assert {text.removesuffix(DAGGER) for text in cells if DAGGER in text} == doubted != set()
    cells = {text.removesuffix(DAGGER): share for text, share in cells.items()}
    assert set(cells) == {"5.00", "2.00", "2.50", "0.80", "1.01"}
    assert cells["1.01"] == 0, "its interval holds 1"
    assert cells["0.80"] < 0 < cells["2.00"] < cells["2.50"] < cells["5.00"]
