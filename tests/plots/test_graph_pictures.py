"""Figures of graphs and state machines: vertex positions, batches, transitions and failures."""

from __future__ import annotations

import importlib
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from matplotlib.figure import Figure

from dynbatch.harness.errors import ConfigError, RecordError
from dynbatch.harness.planning.artifacts import Choices, plan_counts
from dynbatch.harness.values.graph import Graph
from dynbatch.plots.experiment import Experiment, load_experiment
from dynbatch.plots.figures import state_machine
from dynbatch.plots.figures.graph import place_vertices
from dynbatch.plots.write import write_figure
from tests.support.experiments import read_rows
from tests.support.made_up_counts import failed_row, write_made_up_counts, write_real_counts
from tests.support.random_graphs import graphs

POLICIES = ("depth", "agenda", "fsm_sort", "critical_share")
REASON = "not finished within limits.time_s=600"


@settings(deadline=None, max_examples=60)
@given(graphs(max_vertices=30))
def test_vertices_are_apart_and_arguments_below_their_users(graph: Graph) -> None:
    x, y = place_vertices(graph)
    for v in range(graph.n_vertices):
        assert all(y[a] < y[v] for a in graph.select_args(v))
    for layer in np.unique(y):
        assert np.all(np.diff(np.sort(x[y == layer])) >= 1 - 1e-9)


def draw(experiment: Experiment) -> tuple[Figure, pd.DataFrame]:
    kind = experiment.declaration.figure["kind"]
    figure, numbers = importlib.import_module(f"dynbatch.plots.figures.{kind}").draw(experiment)
    return figure, numbers


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
    figure, numbers = draw(experiment)
    counts = experiment.counts.query("graph == 'plain'").set_index("policy")
    assert tuple(counts.index) == POLICIES
    for policy, vertices in numbers.groupby("policy"):
        assert len(vertices) == counts.n_nodes[policy] <= 50
        assert set(vertices.batch) == set(range(1, int(counts.n_batches[policy]) + 1))
    assert counts.n_batches.min() < counts.n_batches["depth"]
    write_figure(figure, numbers, experiment, choices.results_dir / name)
    rows = read_rows(choices.results_dir / f"{name}.csv")
    assert len(rows) == counts.n_nodes.sum()
    assert rows[0]["batch"] == "1", "integers have no decimals"


@pytest.mark.slow
def test_a_state_machine_is_drawn_with_its_transitions(choices: Choices) -> None:
    experiment = load_counted("edbatch_fig2", choices)
    _, numbers = draw(experiment)
    assert numbers.n_times.sum() == experiment.counts.query("graph == 'plain'").n_batches.iloc[0]
    assert numbers.takes[0] == "start"
    assert list(numbers) == ["state", "takes", "next_state", "n_times"]


@pytest.mark.slow
def test_a_policy_that_failed_has_its_status(choices: Choices) -> None:
    figure, numbers = draw(load_counted("edbatch_fig1", choices, "fsm_sort"))
    found = set(zip(numbers.policy, numbers.status, strict=True))
    ok = {(policy, "ok") for policy in POLICIES if policy != "fsm_sort"}
    assert found == {*ok, ("fsm_sort", "timeout")}
    assert any("fsm_sort: timeout." in text.get_text() for text in figure.texts)


def test_missing_counts_have_a_status_and_outdated_ones_are_refused(choices: Choices) -> None:
    name = "edbatch_fig1"
    sweeps = plan_counts(name, choices)
    _, numbers = draw(load_experiment(name, choices, (), sweeps))
    assert set(numbers.status) == {"not measured"}
    assert set(numbers.policy) == set(POLICIES)
    write_made_up_counts(sweeps, choices.results_dir)
    with pytest.raises(RecordError, match=r"batches of depth.* delete its file and count again"):
        draw(load_experiment(name, choices, (), sweeps))


@pytest.mark.slow
def test_a_policy_without_states_is_refused(choices: Choices) -> None:
    experiment = load_counted("edbatch_fig1", choices, "fsm_sort")
    with pytest.raises(ConfigError, match="only a state machine can be drawn"):
        state_machine.draw(experiment)
