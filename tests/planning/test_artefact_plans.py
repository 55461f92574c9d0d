"""The shipped experiments: each plans, shows what it measures, and shares its trials."""

from __future__ import annotations

import itertools
import json

import pytest

from harness.planning.artefacts import (
    Choices,
    choices_from,
    measuring_order,
    plan_artefact,
    plan_counts,
)
from harness.planning.compose import Composer
from harness.planning.grid import SCALES, experiment_names, read_experiment
from harness.records.stats import INTERVAL_ROUNDS
from plots.numbers.presentation import read_presentation

PAPER = pytest.param("paper", marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


def choices(scale: str) -> Choices:
    return choices_from({"scale": scale, "device": "cpu", "data_root": "none"}, {})


@pytest.mark.parametrize("scale", ["smoke", pytest.param("paper", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_plans_and_shows_all_it_measures(
    name: str, scale: str, composer: Composer
) -> None:
    trials = plan_artefact(name, choices(scale), composer)
    measures = read_experiment(name)["scales"][scale] != "nothing"
    assert bool(trials or plan_counts(name, choices(scale))) == measures
    shown = read_presentation(name, choices(scale).conf_dir)
    assert all(shown.axis in trial.settings for trial in trials if shown.axis)
    if not shown.compare:
        return
    measured = {trial.settings["system"] for trial in trials}
    assert measured <= {system for group in shown.compare.values() for system in group}
    assert all(measured & set(group) for group in shown.compare.values())


def test_artefacts_share_their_trials(composer: Composer) -> None:
    plans = [plan_artefact(name, choices("smoke"), composer) for name in experiment_names()]
    trials = measuring_order(trial for plan in plans for trial in plan)
    assert len({trial.trial_id for trial in trials}) == len(trials)
    assert len(trials) < sum(map(len, plans)) / 2
    # The minutes that the pipeline may take on 2 cores allow about 9 processes a system, of 1 to 4
    # seconds each and the first of a model longer; one that is added comes with its own. Single
    # cells take 1 second.
    small = [trial for trial in trials if trial.settings["model"] == "cell"]
    n_systems = len({t.settings["system"] for t in trials if t not in small})
    assert (sum(trial.rounds for trial in trials) - len(small)) / n_systems <= 120 / 13
    assert len(small) <= 20


@pytest.mark.parametrize("scale", [s for s in SCALES if s != "paper"] + [PAPER])
def test_every_batch_size_of_an_artefact_measures_the_same_instances(
    scale: str, composer: Composer
) -> None:
    for name in experiment_names():
        if scale not in read_experiment(name)["scales"]:
            continue
        found: dict[str, set[int]] = {}
        for trial in plan_artefact(name, choices(scale), composer):
            spec = trial.spec
            rest = {k: v for k, v in trial.settings.items() if k != "batch_size"}
            key = json.dumps({k: v for k, v in rest.items() if not k.startswith("timing.")})
            found.setdefault(key, set()).add(spec.n_mini_batches * spec.batch_size)
        unlike = {key: sizes for key, sizes in found.items() if len(sizes) > 1}
        assert unlike == {}, f"{name}: other batch sizes measure other instances"


@pytest.mark.parametrize("name", experiment_names())
def test_numbers_at_the_papers_scale_have_an_interval(name: str) -> None:
    paper = read_experiment(name)["scales"]["paper"]
    if isinstance(paper, dict) and paper.get("blocks"):
        assert paper["rounds"] >= INTERVAL_ROUNDS


def test_the_systems_of_a_point_stand_together(composer: Composer) -> None:
    trials = measuring_order(plan_artefact("cavs_fig8d", choices("smoke"), composer))
    sizes = [trial.settings["batch_size"] for trial in trials]
    n_changes = sum(a != b for a, b in itertools.pairwise(sizes))
    assert n_changes < 2 * len(set(sizes))
