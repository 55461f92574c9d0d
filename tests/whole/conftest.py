"""Working directory for the pipeline."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from dynbatch.harness.values.paths import CONF_DIR
from tests.support.pipelines import CURVES, SPEEDUPS, build_experiment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a working directory with its own two experiments, which share their trials."""
    shutil.copytree(CONF_DIR, tmp_path / "conf", ignore=shutil.ignore_patterns("experiment"))
    place = tmp_path / "conf" / "experiment"
    place.mkdir()
    for name, shown in (("small_curves", CURVES), ("small_table", SPEEDUPS)):
        (place / f"{name}.yaml").write_text(yaml.safe_dump(build_experiment(shown)))
    return tmp_path
