"""The first module of a child: what it becomes, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.values.places import ROOT

MODULE = """
import atexit
import gc

class Slow:
    def __del__(self):
        print("taken apart")

kept = Slow()

def main(words):
    assert gc.isenabled() and gc.get_freeze_count() > 0
    atexit.register(print, "registered")
    print("said", *words, end=" ")
    {end}
"""


def begun(folder: Path, end: str) -> subprocess.CompletedProcess[str]:
    (folder / "some_module.py").write_text(MODULE.format(end=end), encoding="utf-8")
    command = [sys.executable, "-m", "harness.measuring.child", str(os.getpid()), "some_module"]
    search = os.pathsep.join([str(ROOT), str(folder)])
    environment = {**os.environ, "PYTHONPATH": search}
    return subprocess.run([*command, "a", "b"], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("code", [0, 7])
def test_it_ends_with_the_code_and_after_what_was_registered(tmp_path: Path, code: int) -> None:
    done = begun(tmp_path, f"return {code}")
    assert done.returncode == code, done.stderr
    assert done.stdout == "said a b registered\n", "and nothing was taken apart"


def test_an_error_is_told_as_ever(tmp_path: Path) -> None:
    done = begun(tmp_path, "raise ValueError('why')")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: why\n")
