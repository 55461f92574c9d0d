"""Working directory for the pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pipelines import CURVES, SPEEDUPS, build_experiment, write_conf


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a working directory with its own two experiments, which share their trials."""
    curves, table = build_experiment(CURVES), build_experiment(SPEEDUPS)
    write_conf(tmp_path, small_curves=curves, small_table=table)
    return tmp_path
