"""Machine code between processes: found again as it was written, else compiled anew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.machine.caches import NAME
from harness.machine.machine_code import FOLDER
from harness.values.places import ROOT
from tests.support.damages import DAMAGES

SOURCE = """
from harness.machine.compiled import compiled

@compiled
def tripled(x):
    return 3 * x

@compiled
def doubled(x):
    return 2 * x
"""
RUN = (
    "from copied import doubled, tripled; print(doubled(4), tripled(4),"
    " sum(doubled.stats.cache_hits.values()), sum(tripled.stats.cache_hits.values()))"
)


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "copied.py").write_text(SOURCE)
    return tmp_path


def start(folder: Path, program: str = RUN) -> subprocess.Popen[str]:
    paths = {
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | paths,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, program: str = RUN) -> list[str]:
    """What a fresh process computes, and how often each function was found."""
    process = start(folder, program)
    printed, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (0, "")
    return printed.split()


def entries(folder: Path) -> list[Path]:
    return list((folder / "cache" / NAME / FOLDER).iterdir())


@pytest.mark.slow
def test_damaged_machine_code_is_compiled_anew(module: Path) -> None:
    assert run(module) == ["8", "12", "0", "0"]
    assert run(module) == ["8", "12", "1", "1"]
    for name in ("empty", "a bit changed", "another's"):
        first, second = entries(module)
        DAMAGES[name](first, second)
        assert sorted(run(module)[2:]) == ["0", "1"], name
    assert run(module) == ["8", "12", "1", "1"]


@pytest.mark.slow
def test_nothing_is_loaded_from_a_folder_that_others_may_write(module: Path) -> None:
    run(module)
    (module / "cache" / NAME).chmod(0o777)
    process = start(module)
    printed, said = process.communicate(timeout=120)
    assert printed.split() == ["8", "12", "0", "0"]
    assert len(said.splitlines()) == 1
    assert "may be written by others" in said


@pytest.mark.slow
def test_processes_may_compile_the_same_at_once(module: Path) -> None:
    processes = [start(module) for _ in range(3)]
    for process in processes:
        printed, said = process.communicate(timeout=120)
        assert (process.returncode, said) == (0, "")
        assert printed.split()[:2] == ["8", "12"]
    assert len(entries(module)) == 2
    assert run(module) == ["8", "12", "1", "1"]


def test_what_is_compiled_anew_on_request_is_not_found(module: Path) -> None:
    run(module)
    again = "from copied import doubled; doubled(4); doubled.recompile(); print(doubled.stats)"
    printed = "".join(run(module, again))
    assert "cache_misses=Counter({(int64,):1})" in printed
    assert run(module) == ["8", "12", "1", "1"]
