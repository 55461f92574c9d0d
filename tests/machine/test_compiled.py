"""Cached machine code belongs to the source text of all that it may inline."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness.machine.compiled import compiled, compiled_with
from harness.values.places import ROOT

HELPER = """
from harness.machine.compiled import compiled

@compiled
def helper(x):
    return x + {added}
"""
CALLER = """
from harness.machine.compiled import compiled
from copied.parts.helper import helper

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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", RUN], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.split()


def test_an_edited_helper_makes_its_callers_stale(tmp_path: Path) -> None:
    package = tmp_path / "copied"
    parts = package / "parts"
    parts.mkdir(parents=True)
    (parts / "helper.py").write_text(HELPER.format(added=1))
    (package / "caller.py").write_text(CALLER)
    assert run_copy(tmp_path) == ["2", "0", "1"]
    assert run_copy(tmp_path) == ["2", "1", "0"]
    (parts / "helper.py").write_text(HELPER.format(added=10))
    assert run_copy(tmp_path) == ["11", "0", "1"]


def test_an_edited_constant_makes_its_readers_stale(tmp_path: Path) -> None:
    package = tmp_path / "copied"
    package.mkdir()
    (package / "sizes.py").write_text("ADDED = 1\n")
    (package / "caller.py").write_text(
        "from harness.machine.compiled import compiled\nfrom copied.sizes import ADDED\n"
        "@compiled\ndef caller(x):\n    return x + ADDED\n"
    )
    assert run_copy(tmp_path) == ["2", "0", "1"]
    assert run_copy(tmp_path) == ["2", "1", "0"]
    (package / "sizes.py").write_text("ADDED = 10\n")
    assert run_copy(tmp_path) == ["11", "0", "1"]


@compiled_with(constants=False)
def _once(x: int) -> int:
    return x + 1


@compiled_with()
def _each(x: int) -> int:
    return x + 1


@compiled
def _caller(x: int) -> int:
    return _once(1) + _once(2) + _once(x) + _each(1) + _each(2) + _each(x)


def test_constants_of_callers_compile_anew_only_where_they_may_help() -> None:
    assert _caller(3) == 2 * (2 + 3 + 4)
    _caller.recompile()  # type: ignore[attr-defined] # not from a file of an earlier run
    assert len(_once.signatures) == 1  # type: ignore[attr-defined]
    assert len(_each.signatures) == 3  # type: ignore[attr-defined]
