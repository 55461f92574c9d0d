"""Artefacts to draw: small sizes, made-up systems, no corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.figure import Figure

from harness.commands import draw
from harness.planning.artefacts import Choices, choices_from
from harness.planning.config import Composer
from plots.experiment import Experiment
from tests.support.experiments import Load, load_made_up
from tests.support.records import Change, conf_with_made_up_systems


@pytest.fixture(scope="session")
def conf_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration, its systems existing in name only; to be read and not to be changed."""
    return conf_with_made_up_systems(tmp_path_factory.mktemp("made_up"))


@pytest.fixture
def choices(conf_dir: Path, tmp_path: Path) -> Choices:
    """Small sizes, no corpus, so that synthetic trees stand in."""
    config = {
        "scale": "smoke",
        "device": "cpu",
        "data_root": conf_dir.parent / "no_data",
        "results_dir": tmp_path / "results",
        "conf_dir": conf_dir,
    }
    return choices_from(config, {})


@pytest.fixture(scope="session")
def composer(conf_dir: Path) -> Composer:
    """Composes that configuration, and remembers its parts."""
    return Composer(conf_dir)


@pytest.fixture(autouse=True)
def _draw_composes_once(composer: Composer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "Composer", lambda _: composer)


@pytest.fixture
def without_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are laid out, and their files are empty: for tests of numbers."""
    monkeypatch.setattr(Figure, "savefig", lambda *_, **_options: None)


@pytest.fixture
def load(choices: Choices, composer: Composer) -> Iterator[Load]:
    """Loads an experiment with made-up records, which a change may alter."""

    def load(name: str, change: Change | None = None, scale: str = "smoke") -> Experiment:
        return load_made_up(name, replace(choices, scale=scale), composer, change)

    yield load
    plt.close("all")
