"""A working folder for the pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pipelines import small_pipeline


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with its own two artefacts, which share their trials."""
    return small_pipeline(tmp_path)
