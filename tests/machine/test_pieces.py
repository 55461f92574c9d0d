"""Compiled functions that others call by name: one copy, errors come out, never a stale one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from harness.machine.compiled import compiled, compiled_with
from harness.machine.pieces import by_name
from harness.values.places import ROOT


@compiled
def _double(x: np.ndarray, at: int, fails: bool) -> float:  # pragma: no cover - compiled
    if fails:
        raise ValueError("not double")
    x[at] *= 2
    return x[at] + 1.0


_piece = by_name(_double)


@compiled_with()
def _caller(x: np.ndarray, fails: bool) -> float:  # pragma: no cover - compiled
    return _piece(x, 1, fails) + _piece(x, 0, False)


def test_a_piece_computes_what_the_function_does() -> None:
    x = np.array([1.0, 5.0])
    assert _caller(x, False) == 14.0
    assert x.tolist() == [2.0, 10.0]


def test_its_error_comes_out_of_who_called_it() -> None:
    with pytest.raises(ValueError, match="not double"):
        _caller(np.zeros(2), True)


def test_it_is_not_copied_into_who_calls_it() -> None:
    caller = numba.njit(lambda x: _piece(x, 1, False))  # of which nothing is kept
    copying = numba.njit(lambda x: _double(x, 1, False))
    for function in (caller, copying):
        assert function(np.ones(2)) == 3.0
    (text,), (other,) = caller.inspect_asm().values(), copying.inspect_asm().values()
    assert ("addsd" in other, "addsd" in text) == (True, False)


PIECE = """
from harness.machine.compiled import compiled

@compiled
def piece(x):
    return x + {added}
"""
CALLER = """
from harness.machine.compiled import compiled
from harness.machine.pieces import by_name
from copied.piece import piece

named = by_name(piece)

@compiled
def caller(x):
    return named(x)
"""
RUN = """
from harness.machine import pieces
made, make = [], pieces.without_entries
def watched(own, kinds):
    made.append(own.py_func.__name__)
    return make(own, kinds)
pieces.without_entries = watched
from copied.caller import caller
print(caller(1), sum(caller.stats.cache_hits.values()), *made)
"""


def _run_copy(folder: Path, before: str = "") -> list[str]:
    """Value of a call in a fresh process, whether it was kept, and the pieces that were not."""
    paths = {
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", before + RUN],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | paths,
    )
    return done.stdout.split()


def test_machine_code_from_the_disk_finds_its_pieces_and_never_an_old_one(tmp_path: Path) -> None:
    package = tmp_path / "copied"
    package.mkdir()
    (package / "piece.py").write_text(PIECE.format(added=1))
    (package / "caller.py").write_text(CALLER)
    assert _run_copy(tmp_path) == ["2", "0", "piece"]
    assert _run_copy(tmp_path) == ["2", "1"]
    (package / "piece.py").write_text(PIECE.format(added=10))
    assert _run_copy(tmp_path) == ["11", "0", "piece"]


def test_a_name_is_kept_with_the_machine_code_that_calls_it(tmp_path: Path) -> None:
    """Whatever the name would be by now: a name that nobody knows is an address of 0."""
    package = tmp_path / "copied"
    package.mkdir()
    (package / "piece.py").write_text(PIECE.format(added=1))
    (package / "caller.py").write_text(CALLER)
    assert _run_copy(tmp_path) == ["2", "0", "piece"]
    other = "from harness.machine import pieces; pieces.stamp_of = lambda names: 'another'; "
    assert _run_copy(tmp_path, other) == ["2", "1", "piece"]


BETWEEN = """
from harness.machine.compiled import compiled
from harness.machine.pieces import by_name
from copied.piece import piece

named = by_name(piece)

@compiled
def between(x):
    return named(x)
"""
ABOVE = """
from harness.machine.compiled import compiled
from copied.between import between

@compiled
def caller(x):
    return between(x) * {factor}
"""


def test_a_part_that_calls_a_piece_brings_it_along_wherever_it_was_read(tmp_path: Path) -> None:
    """By a new caller, and by that caller from the disk; a lost name is an address of 0."""
    package = tmp_path / "copied"
    package.mkdir()
    (package / "piece.py").write_text(PIECE.format(added=1))
    (package / "between.py").write_text(BETWEEN)
    (package / "caller.py").write_text(ABOVE.format(factor=10))
    assert _run_copy(tmp_path) == ["20", "0", "piece"]
    assert _run_copy(tmp_path) == ["20", "1"]
    (package / "caller.py").write_text(ABOVE.format(factor=100))
    assert _run_copy(tmp_path) == ["200", "0"]
    assert _run_copy(tmp_path) == ["200", "1"]
