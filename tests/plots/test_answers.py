"""The table of answers: a row for each workload of the headlines, all from their records."""

from __future__ import annotations

from typing import Any

import pytest

from harness.planning.artefacts import Choices, PlannedTrial, plan_artefact
from harness.planning.compose import Composer
from harness.planning.grid import EXPERIMENT, experiment_names
from harness.planning.kinds import read_systems
from plots.numbers.artefact import Artefact
from plots.numbers.best_peer import peer_names
from plots.numbers.gather import gather
from plots.tables import answers, peers
from tests.support.made_up_records import write_made_up_records

HEADLINES = [name for name in experiment_names() if name.startswith("headline_")]


def of_headlines(
    choices: Choices, composer: Composer, speeds: dict[str, dict[str, float]]
) -> Artefact:
    """Artefact with records of some headlines; speeds: by headline and system, others 100."""

    def change(trial: PlannedTrial, round_: int) -> dict[str, Any] | None:
        found = speeds.get(trial.settings[EXPERIMENT])
        return None if found is None else {"instances_per_s": found.get(trial.spec.system, 100.0)}

    trials = plan_artefact("answers", choices, composer)
    write_made_up_records(trials, choices, change)
    return gather("answers", choices, trials)


def by_workload(artefact: Artefact) -> dict[str, list[str]]:
    return {row: [c.text for c in cells] for row, cells in answers.table_of(artefact).rows}


def n_peers(artefact: Artefact, headline: str) -> str:
    names = {
        str(point.settings["system"])
        for point in artefact.points
        if point.settings[EXPERIMENT] == f"headline_{headline}"
    }
    return str(len(names & peer_names(artefact.conf_dir)))


@pytest.mark.slow
def test_every_headline_answers_from_its_own_records(choices: Choices, composer: Composer) -> None:
    chosen = {
        "headline_tree_lstm_inference": {"vertex": 300.0, "dynet_depth": 150.0},
        "headline_lattice_lstm": {"vertex": 90.0, "dynet": 180.0, "cavs_dynet": 900.0},
    }
    artefact = of_headlines(choices, composer, chosen)
    rows = by_workload(artefact)
    trees = next(cells for name, cells in rows.items() if name.startswith("Tree-LSTM inference"))
    assert trees[2:] == [
        "300",
        "DyNet depth",
        n_peers(artefact, "tree_lstm_inference"),
        "150",
        "2.00",
    ]
    lattices = next(cells for name, cells in rows.items() if name.startswith("Lattice-LSTM"))
    assert lattices[2:] == [
        "90.0",
        "DyNet agenda",
        n_peers(artefact, "lattice_lstm"),
        "180",
        "0.500",
    ]
    others = [cells[3] for name, cells in rows.items() if cells not in (trees, lattices)]
    assert set(others) == {"not measured"}


@pytest.mark.slow
def test_peers_without_a_trial_are_told_with_their_workload(
    choices: Choices, composer: Composer
) -> None:
    artefact = of_headlines(choices, composer, {"headline_lattice_lstm": {"vertex": 90.0}})
    (note,) = (n for n in answers.table_of(artefact).notes if n.startswith("Of: peers that"))
    known = {one.name: one for one in read_systems(artefact.conf_dir)}
    of_headline: dict[str, set[str]] = {}
    for point in artefact.points:
        of_headline.setdefault(str(point.settings[EXPERIMENT]), set()).add(
            str(point.settings["system"])
        )
    left_out = peer_names(artefact.conf_dir) - of_headline["headline_tree_lstm_inference"]
    runnable = {name for name in left_out if known[name].runs("tree_lstm")}
    assert runnable
    for name in runnable:
        tasks = note.partition(f"{known[name].label} (")[2].partition(")")[0]
        assert "Tree-LSTM inference" in tasks, name


@pytest.mark.slow
def test_its_rows_are_what_the_headlines_say(choices: Choices, composer: Composer) -> None:
    """No headline is left out, and each workload has the ratio of its own table."""
    speeds = {name: {"vertex": 200.0 + k} for k, name in enumerate(HEADLINES)}
    artefact = of_headlines(choices, composer, speeds)
    rows = answers.rows_of(artefact)
    for name in HEADLINES:
        own = gather(name, choices, plan_artefact(name, choices, composer))
        found = [row for row in rows if row["experiment"] == name]
        engine = {row["value"] for row in found if row["system"] == "vertex"}
        assert engine == {speeds[name]["vertex"]}
        ratios = [best.ratio.summary for best in peers.best_peers_of(own).values() if best]
        assert ratios
        gains = [row["engine_over_it_value"] for row in found if row["is_best_peer"]]
        assert gains == [ratio.median for ratio in ratios if ratio]


@pytest.mark.slow
def test_the_csv_ranks_all_that_was_measured(choices: Choices, composer: Composer) -> None:
    name = "headline_lattice_lstm"
    speeds = {name: {"vertex": 90.0, "dynet": 180.0, "torch_levels": 30.0, "cavs_dynet": 900.0}}
    rows = answers.rows_of(of_headlines(choices, composer, speeds))
    ranked = [row for row in rows if row["experiment"] == name and row["value"] is not None]
    assert [row["value"] for row in ranked] == sorted(
        (row["value"] for row in ranked), reverse=True
    )
    assert (ranked[0]["system"], ranked[0]["is_best_peer"]) == ("dynet", True)
    assert {"vertex", "dynet", "torch_levels"} <= {row["system"] for row in ranked}
    assert "cavs_dynet" not in {row["system"] for row in ranked}, "a strategy is no peer"
    (engine,) = (row for row in ranked if row["system"] == "vertex")
    assert engine["engine_over_it_value"] == 1
