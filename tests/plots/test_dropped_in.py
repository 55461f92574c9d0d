"""A new system, which is a Python and a YAML file, is planned and shown without other changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dynbatch.harness.planning.artifacts import Choices, plan_artifact
from dynbatch.harness.planning.config import Composer
from dynbatch.plots.experiment import Experiment, load_experiment
from tests.support.experiments import TABLE, choose, run_draw
from tests.support.records import conf_with_made_up_systems, write_made_up_records

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_pixels")]

LABEL = "Somebody's framework"
HEADLINES = ("headline_tree_lstm_inference", "headline_lattice_lstm")


@pytest.fixture(scope="module")
def conf_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a configuration of the made-up systems and a framework that runs one model."""
    folder = tmp_path_factory.mktemp("dropped_in")
    conf_dir = conf_with_made_up_systems(folder)
    content = {"name": "fresh", "kind": "framework", "adapter": "dynbatch.systems.null_system"}
    own = {"label": LABEL, "models": ["tree_lstm", "tree_lstm_child_sum"]}
    (conf_dir / "system" / "fresh.yaml").write_text(yaml.safe_dump(content | own))
    return conf_dir


@pytest.fixture(scope="module")
def composer(conf_dir: Path) -> Composer:
    return Composer(conf_dir)


def load(name: str, choices: Choices, composer: Composer) -> Experiment:
    trials = plan_artifact(name, choices, composer)
    write_made_up_records(trials, choices)
    return load_experiment(name, choices, trials)


@pytest.mark.parametrize("name", HEADLINES)
def test_only_the_table_of_systems_has_its_column(
    name: str, conf_dir: Path, composer: Composer, tmp_path: Path
) -> None:
    choices = choose(conf_dir, tmp_path)
    load(name, choices, composer)
    assert run_draw(name, choices) == 0
    systems = (tmp_path / f"tables/{name}_systems.md").read_text(encoding="utf-8")
    strategies = (tmp_path / f"tables/{name}_strategies.md").read_text(encoding="utf-8")
    assert (LABEL in systems) == ("tree" in name)
    assert LABEL not in strategies
    assert "DyNet agenda" in systems


def test_systems_not_measured_at_a_scale_have_no_column(
    conf_dir: Path, composer: Composer, tmp_path: Path
) -> None:
    """Tables of the Cavs paper have few systems at the small scale."""
    experiment = load(TABLE, choose(conf_dir, tmp_path), composer)
    assert "fresh" in experiment.declaration.compare["systems"]
    systems = experiment.compare["systems"]
    assert systems == ("cavs", "dynet", "fold", "torch_levels", "torchfold", "vertex")
