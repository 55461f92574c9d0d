"""Kernels that Triton compiled are found by other processes, and compiled anew once damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest

from harness.engine.backends.cuda.backend import FOLDER
from harness.machine.caches import NAME
from harness.values.places import ROOT
from tests.support.damages import DAMAGES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(util.find_spec("triton") is None, reason="Triton is not installed"),
]


def run(home: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.small_kernel"],
        cwd=ROOT,
        env=environment | {"XDG_CACHE_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def files(home: Path, pattern: str) -> list[Path]:
    return sorted((home / NAME / FOLDER).rglob(pattern))


WAYS = {"run.json": "empty", "run.cubin": "a bit changed", "*.sha256": "cut off"}


def test_a_damaged_kernel_is_compiled_anew(tmp_path: Path) -> None:
    """One damage after the other, each to what the one before had compiled anew."""
    assert run(tmp_path) == "compiled True"
    assert run(tmp_path) == "found True"
    for pattern, damage in WAYS.items():
        damaged = files(tmp_path, pattern)
        assert damaged, pattern
        for path in damaged:
            DAMAGES[damage](path, path)
        assert run(tmp_path) == "compiled True", pattern
    assert run(tmp_path) == "found True"
    assert files(tmp_path, "*.tmp") == []
