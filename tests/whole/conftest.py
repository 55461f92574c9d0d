"""A working folder for the pipeline."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from harness.values.places import CONF_DIR
from tests.support.pipelines import experiment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with its own two artefacts, which share their trials."""
    shutil.copytree(CONF_DIR, tmp_path / "conf", ignore=shutil.ignore_patterns("experiment"))
    place = tmp_path / "conf" / "experiment"
    place.mkdir()
    curves = experiment("plots.figures.curves", ["epoch_s"])
    table = experiment("plots.tables.speedups", ["computation_s", "overall_speedup"])
    for name, content in (("small_curves", curves), ("small_table", table)):
        (place / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return tmp_path
