"""Artefacts to draw: small sizes, made-up systems, no corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.planning.artefacts import Choices, choices_from
from harness.planning.compose import Composer
from tests.support.records import conf_with_made_up_systems


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
        "data_root": tmp_path / "no_data",
        "results_dir": tmp_path / "results",
        "conf_dir": conf_dir,
    }
    return choices_from(config, {})


@pytest.fixture(scope="session")
def composer(conf_dir: Path) -> Composer:
    """Composes that configuration, and remembers its parts."""
    return Composer(conf_dir)
