"""Figures of curves, graphs and state machines: numbers, statuses, batches and transitions."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dynbatch.harness.errors import ConfigError, RecordError
from dynbatch.harness.planning.artifacts import Choices, PlannedTrial, plan_counts
from dynbatch.harness.records.numbers import NOT_MEASURED
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.plots.declaration import read_declaration
from dynbatch.plots.experiment import Experiment, load_experiment
from dynbatch.plots.figures import curves, graph, state_machine
from tests.support.experiments import Load, change_systems, select_number
from tests.support.made_up_counts import failed_row, write_made_up_counts, write_real_counts
from tests.support.random_graphs import graphs
from tests.support.records import Change

HEAD, VARIANT = "torch_levels", "dynet"  # the second becomes a variant of the first
TOTAL_FAILURE = {"status": "oom", "reason": "made up"}


def _find_axes(figure: Figure, title: str) -> Axes:
    (axes,) = (axes for axes in figure.axes if axes.get_title(loc="left") == title)
    return axes


def _list_marks(axes: Axes) -> list[tuple[tuple[float, ...], Any]]:
    """Return the y of each series of marks, and the style of its line."""
    series = [line for line in axes.lines if line.get_transform() == axes.transData]
    marked = [line for line in series if line.get_marker() not in ("None", "")]
    return [
        (tuple(map(float, np.asarray(line.get_ydata()))), line.get_linestyle()) for line in marked
    ]


def _list_texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_numbers_are_medians_of_the_records_times_the_epoch(load: Load) -> None:
    experiment = load("cavs_fig8d", scale="paper")
    _, found = curves.draw(experiment)
    rounds = experiment.rows.query("system == 'cavs' and batch_size == 64")
    number = select_number(found, group="strategies", system="cavs", batch_size=64)
    assert number.value == pytest.approx((8544 / rounds.instances_per_s).median())
    assert number.low < number.value < number.high
    assert (number.quantity, number.n_rounds) == ("instance_s", len(rounds))


def test_all_numbers_are_drawn_and_comparisons_never_share_a_panel(load: Load) -> None:
    figure, found = curves.draw(load("cavs_fig8d"))
    titles = {"Strategies on one engine": "strategies", "Systems": "systems"}
    for title, group in titles.items():
        drawn = [y for marks, _ in _list_marks(_find_axes(figure, title)) for y in marks]
        assert sorted(drawn) == pytest.approx(sorted(found.value[found.group == group]))
    assert "dynet" not in set(found.system[found.group == "strategies"])
    assert "dynet_policy" not in set(found.system[found.group == "systems"])
    published = select_number(found, group="published", system="TF Fold", batch_size=64)
    assert (published.value, published.status) == (pytest.approx(69.1), "published")
    assert "Titan X" in published.source
    marks = _list_marks(_find_axes(figure, "Systems"))
    assert {len(ys) for ys, _ in marks} == {1, 2, 3}
    assert all((style == "None") == (len(ys) == 1) for ys, style in marks), "a point has no line"


def test_sizes_without_records_are_omitted_and_noted(load: Load) -> None:
    def change(trial: PlannedTrial, _: int) -> dict[str, Any] | None:
        return None if trial.settings["batch_size"] == 64 else {}

    figure, found = curves.draw(load("cavs_fig8d", change))
    largest = found[(found.batch_size == 64) & (found.group == "systems")]
    assert set(largest.status) == {NOT_MEASURED}
    assert _find_axes(figure, "Systems").get_xlim()[1] < 64
    assert "Not measured: batch size 64." in figure.texts[-1].get_text().replace("\n", " ")
    figure, _ = curves.draw(load("cavs_fig8g", lambda *_: None))
    assert f"{NOT_MEASURED}:" in _list_texts(figure), "a figure of nothing says so"


def _load_variants(load: Load, change: Change) -> Experiment:
    experiment: Experiment = load("cavs_fig8d", change)
    systems = [
        replace(system, variant_of=HEAD) if system.name == VARIANT else system
        for system in experiment.systems
    ]
    return replace(experiment, systems=tuple(systems))


def test_variants_are_one_curve_of_the_fastest_at_each_point(load: Load) -> None:
    winners = {16: HEAD, 64: VARIANT}

    def change(trial: PlannedTrial, _: int) -> dict[str, Any]:
        wins = winners.get(trial.settings["batch_size"]) == trial.settings["system"]
        return {"instances_per_s": 20.0 if wins else 10.0}

    figure, found = curves.draw(_load_variants(load, change))
    curve = found[(found.group == "systems") & (found.curve == HEAD)]
    assert dict(zip(curve.batch_size, curve.system, strict=True)) == {4: VARIANT, **winners}
    assert list(curve.value) == pytest.approx([8544 / 10, 8544 / 20, 8544 / 20])
    assert VARIANT not in set(found.curve)
    assert "DyNet agenda" not in _list_texts(figure)


def test_a_variant_without_a_number_gives_way(load: Load) -> None:
    _, found = curves.draw(_load_variants(load, change_systems({VARIANT: TOTAL_FAILURE})))
    curve = found[(found.group == "systems") & (found.curve == HEAD)].set_index("batch_size")
    assert curve.system[16] == HEAD
    assert (curve.system[4], curve.status[4]) == (VARIANT, "oom"), "which alone is planned there"


def test_a_gain_is_the_time_of_the_base_over_that_with_the_switch(load: Load) -> None:
    def change(trial: PlannedTrial, _: int) -> dict[str, Any]:
        return {"instances_per_s": 30.0 if trial.settings["system.options.fusion"] else 10.0}

    figure, found = curves.draw(load("cavs_fig10a", change))
    assert set(found.curve) == {"all with hoisting"}, "what this scale has no trial of has no curve"
    assert found.value.iloc[0] > 3, "construction and scheduling are left out"
    assert found.status.iloc[0] == "ok"
    assert _list_texts(figure) == ["all with hoisting"], "a single point is a mark with a name"


def test_a_mark_is_the_best_over_batch_sizes_and_merged_systems(load: Load) -> None:
    def change(trial: PlannedTrial, _: int) -> dict[str, Any]:
        speed = 3.0 if trial.settings["system"] == "dynet_depth" else 1.0
        return {"instances_per_s": speed / trial.settings["batch_size"]}

    _, found = curves.draw(load("edbatch_fig6", change))
    trees = found[(found.model == "tree_lstm") & (found.group == "systems")]
    dynet = trees[(trees.curve == "dynet") & trees.is_best]
    assert list(zip(dynet.system, dynet.batch_size, strict=True)) == [("dynet", 8)]
    assert len(trees[trees.curve == "dynet"]) == 3, "the CSV has all points"
    lattices = found[(found.model == "lattice_lstm") & (found.curve == "dynet")]
    assert list(lattices.system[lattices.is_best]) == ["dynet_depth"]


def test_a_figure_of_one_size_has_models_in_place_of_sizes(load: Load) -> None:
    figure, found = curves.draw(load("edbatch_fig6"))
    best = found[found.is_best]
    for axes, group in zip(figure.axes, ("strategies", "systems"), strict=True):
        marks = _list_marks(axes)
        drawn = [y for ys, _ in marks for y in ys]
        assert sorted(drawn) == pytest.approx(sorted(best.value[best.group == group]))
        assert {style for _, style in marks} == {"None"}, "no line joins models"
    names = {text.get_text() for text in figure.axes[0].get_xticklabels()}
    assert names == {"Tree-LSTM", "Lattice-LSTM", "BiLSTM", "Translation"}


def test_points_along_an_axis_differ_in_nothing_else(load: Load) -> None:
    _, found = curves.draw(load("scaling"))
    along = found[(found["axis"] == "batch_size") & (found.system == "vertex")]
    assert set(along.batch_size) == {4, 16, 64}
    assert set(along.hidden_size) == {64}
    along = found[(found["axis"] == "hidden_size") & (found.system == "vertex")]
    assert set(along.batch_size) == {16}
    assert set(found.status[found.quantity == "peak_memory_mib"]) == {"not separable"}


def _fit(ys: list[float]) -> pd.DataFrame | None:
    data = {"batch_size": [4**k for k in range(len(ys))], "value": ys, "curve": "vertex"}
    found = pd.DataFrame(data).assign(quantity="mini_batch_ms")
    return next(iter(curves.fit_exponents(found, "batch_size")), None)


def test_an_exponent_needs_four_points() -> None:
    assert _fit([1.0, 2.0, 4.0]) is None
    law = _fit([9.0, 1.0, 2.0, 4.0, 8.0])
    assert law is not None
    number = law.iloc[0]
    assert (number.value, number.low, number.high) == pytest.approx((0.5, 0.5, 0.5))
    assert number.quantity == "exponent of mini_batch_ms"


def test_the_interval_of_an_exponent_covers_as_often_as_it_says() -> None:
    random, n_within = np.random.default_rng(0), 0
    for _ in range(500):
        law = _fit([4.0 ** (0.7 * k) * np.exp(0.1 * random.standard_normal()) for k in range(4)])
        assert law is not None
        n_within += law.low.iloc[0] <= 0.7 <= law.high.iloc[0]
    assert 0.92 < n_within / 500 < 0.98


@pytest.mark.parametrize("name", ["cavs_fig10a", "cavs_fig10b"])
def test_a_curve_of_one_option_has_the_name_of_that_option(name: str) -> None:
    """No option is shown in place of another: hoisting is not Cavs's streaming."""
    settings = read_declaration(name, CONF_DIR).read_options("figure", curves.Options).settings
    names = {"stream": "streaming", "all": "all of the paper's"}
    for label, change in settings.items():
        options = [
            names.get(str(on)) or key.rpartition(".")[2].replace("_", " ")
            for key, on in change.items()
        ]
        assert (label in ("all of the paper's", "all with hoisting")) == (len(options) > 1)
        assert len(options) > 1 or label == options[0]
        assert (label == "all of the paper's") == (len(options) > 1 and "streaming" in options)


# --- graphs and state machines ---

POLICIES = ("depth", "agenda", "fsm_sort", "critical_share")
REASON = "not finished within limits.time_s=600"


@settings(deadline=None, max_examples=60)
@given(graphs(max_vertices=30))
def test_vertices_are_apart_and_arguments_below_their_users(drawn: Graph) -> None:
    x, y = graph.place_vertices(drawn)
    for v in range(drawn.n_vertices):
        assert all(y[a] < y[v] for a in drawn.select_args(v))
    for layer in np.unique(y):
        assert np.all(np.diff(np.sort(x[y == layer])) >= 1 - 1e-9)


def load_counted(name: str, choices: Choices, *failing: str) -> Experiment:
    """Return an experiment with real counts, in which some policies failed."""
    sweeps = plan_counts(name, choices)
    write_real_counts(sweeps, choices.results_dir)
    for path in (sweep.build_path(choices.results_dir) for sweep in sweeps):
        rows = json.loads(path.read_text())
        rows = [failed_row(r, "timeout", REASON) if r["policy"] in failing else r for r in rows]
        path.write_text(json.dumps(rows))
    return load_experiment(name, choices, (), sweeps)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["edbatch_fig1", "edbatch_fig1_lattice"])
def test_a_picture_has_the_batches_that_were_counted(name: str, choices: Choices) -> None:
    experiment = load_counted(name, choices)
    _, numbers = graph.draw(experiment)
    counts = experiment.counts.query("graph == 'plain'").set_index("policy")
    assert tuple(counts.index) == POLICIES
    for policy, vertices in numbers.groupby("policy"):
        assert len(vertices) == counts.n_nodes[policy] <= 50
        assert set(vertices.batch) == set(range(1, int(counts.n_batches[policy]) + 1))
    assert counts.n_batches.min() < counts.n_batches["depth"]
    assert len(numbers) == counts.n_nodes.sum()
    assert numbers.batch.dtype == "Int64", "integers have no decimals in a file"


@pytest.mark.slow
def test_a_state_machine_is_drawn_with_its_transitions(choices: Choices) -> None:
    experiment = load_counted("edbatch_fig2", choices)
    _, numbers = state_machine.draw(experiment)
    assert numbers.n_times.sum() == experiment.counts.query("graph == 'plain'").n_batches.iloc[0]
    assert numbers.takes[0] == "start"
    assert list(numbers) == ["state", "takes", "next_state", "n_times"]


@pytest.mark.slow
def test_a_policy_that_failed_has_its_status(choices: Choices) -> None:
    figure, numbers = graph.draw(load_counted("edbatch_fig1", choices, "fsm_sort"))
    found = set(zip(numbers.policy, numbers.status, strict=True))
    ok = {(policy, "ok") for policy in POLICIES if policy != "fsm_sort"}
    assert found == {*ok, ("fsm_sort", "timeout")}
    assert any("fsm_sort: timeout." in text.get_text() for text in figure.texts)


@pytest.mark.slow
def test_the_caption_of_a_graph_is_that_of_a_count_with_a_record(choices: Choices) -> None:
    experiment = load_counted("edbatch_fig1", choices)
    counts = experiment.counts
    is_lost = counts.policy == POLICIES[0]
    lost = counts.assign(
        status=counts.status.mask(is_lost, NOT_MEASURED), offset=counts.offset.mask(is_lost)
    )
    figure, _ = graph.draw(replace(experiment, counts=lost))
    assert any("from instance 4867 on." in text.get_text() for text in figure.texts)


def test_missing_counts_have_a_status_and_outdated_ones_are_refused(choices: Choices) -> None:
    name = "edbatch_fig1"
    sweeps = plan_counts(name, choices)
    _, numbers = graph.draw(load_experiment(name, choices, (), sweeps))
    assert set(numbers.status) == {"not measured"}
    assert set(numbers.policy) == set(POLICIES)
    write_made_up_counts(sweeps, choices.results_dir)
    with pytest.raises(RecordError, match=r"batches of depth.* delete its file and count again"):
        graph.draw(load_experiment(name, choices, (), sweeps))


@pytest.mark.slow
def test_a_graph_is_built_by_the_configuration_of_its_counts(
    choices: Choices, tmp_path: Path
) -> None:
    experiment = load_counted("edbatch_fig1", choices, "fsm_sort")
    folder = Path(shutil.copytree(experiment.conf_dir, tmp_path / "own"))
    (folder / "model" / f"{experiment.counts.model[0]}.yaml").unlink()
    with pytest.raises(ConfigError, match="model="):
        graph.draw(replace(experiment, conf_dir=folder))


@pytest.mark.slow
def test_a_policy_without_states_is_refused(choices: Choices) -> None:
    experiment = load_counted("edbatch_fig1", choices, "fsm_sort")
    with pytest.raises(ConfigError, match="only a state machine can be drawn"):
        state_machine.draw(experiment)
