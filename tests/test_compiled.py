"""Cached machine code belongs to the source text of its whole folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness.policies import _compiled

HELPER = """
from copied._compiled import compiled

@compiled
def helper(x):
    return x + {added}
"""
CALLER = """
from copied._compiled import compiled
from copied.helper import helper

@compiled
def caller(x):
    return helper(x)
"""
RUN = (
    "from copied.caller import caller; print(caller(1), sum(caller.stats.cache_hits.values()),"
    " sum(caller.stats.cache_misses.values()))"
)


def run_copy(folder: Path) -> list[str]:
    """Call the function in a fresh process; returns its value, cache hits and cache misses."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", RUN], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.split()


def test_an_edited_helper_makes_its_callers_stale(tmp_path: Path) -> None:
    package = tmp_path / "copied"
    package.mkdir()
    shutil.copy(Path(_compiled.__file__), package)
    (package / "helper.py").write_text(HELPER.format(added=1))
    (package / "caller.py").write_text(CALLER)
    assert run_copy(tmp_path) == ["2", "0", "1"]
    assert run_copy(tmp_path) == ["2", "1", "0"]
    (package / "helper.py").write_text(HELPER.format(added=10))
    assert run_copy(tmp_path) == ["11", "0", "1"]
