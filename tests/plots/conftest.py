"""Experiments to draw: small sizes, made-up systems, no real dataset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from dynbatch.harness.commands import draw
from dynbatch.harness.planning.artifacts import Choices, build_choices, plan_counts
from dynbatch.harness.planning.config import Composer
from dynbatch.plots.experiment import Experiment, load_experiment
from tests.support.experiments import Load, write_measured
from tests.support.records import Change, conf_with_made_up_systems


@pytest.fixture(scope="session")
def conf_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a configuration whose systems have only names; tests must not change it."""
    return conf_with_made_up_systems(tmp_path_factory.mktemp("made_up"))


@pytest.fixture
def choices(conf_dir: Path, tmp_path: Path) -> Choices:
    """Return choices of small sizes without a real dataset, so that synthetic ones replace it."""
    results = tmp_path / "results"
    config = {"scale": "smoke", "device": "cpu", "data_root": results / "no_data"}
    return build_choices({**config, "results_dir": results, "conf_dir": conf_dir}, {})


@pytest.fixture(scope="session")
def composer(conf_dir: Path) -> Composer:
    """Return a composer of that configuration, which caches its parts."""
    return Composer(conf_dir)


@pytest.fixture(autouse=True)
def _draw_composes_once(composer: Composer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "Composer", lambda _: composer)


@pytest.fixture
def without_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay out figures but write empty files, for tests of numbers."""
    monkeypatch.setattr(Figure, "savefig", lambda *_, **_options: None)


@pytest.fixture
def load(choices: Choices, composer: Composer) -> Load:
    """Return a function that loads an experiment with made-up records, which `change` may alter."""

    def load(name: str, change: Change | None = None, scale: str = "smoke") -> Experiment:
        own = replace(choices, scale=scale)
        trials = write_measured(name, own, composer, change)
        return load_experiment(name, own, trials, plan_counts(name, own))

    return load
