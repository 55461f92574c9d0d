"""Cached machine code belongs to the source text of all that it may inline."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    paths = {
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    environment = os.environ | paths
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=folder,
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


def test_an_edited_helper_of_the_harness_makes_functions_of_other_packages_stale(
    tmp_path: Path,
) -> None:
    own = shutil.copytree(ROOT / "harness", tmp_path / "harness")
    package = tmp_path / "copied"
    package.mkdir()
    (own / "helper.py").write_text(HELPER.format(added=1))
    (package / "caller.py").write_text(CALLER.replace("copied.parts.helper", "harness.helper"))
    assert run_copy(tmp_path) == ["2", "0", "1"]
    assert run_copy(tmp_path) == ["2", "1", "0"]
    (own / "helper.py").write_text(HELPER.format(added=10))
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


NUMBER = "import numpy as np\nADDED = np.float32({added})\n"
TABLE = "import numpy as np\nADDED = np.array([{added}])\n"
READER = """
from harness.machine.compiled import compiled
from copied.parts.sizes import ADDED

@compiled
def caller(x):
    return int(x + {added})
"""


@pytest.mark.parametrize(
    ("text", "added", "handed_on"), [(NUMBER, "ADDED", True), (TABLE, "ADDED[0]", False)]
)
def test_what_tells_nothing_of_its_home_makes_its_readers_stale(
    tmp_path: Path, text: str, added: str, handed_on: bool
) -> None:
    """A number or an array of NumPy has no module of its own; it may come through another file."""
    parts = tmp_path / "copied" / "parts"
    parts.mkdir(parents=True)
    home = parts / ("more.py" if handed_on else "sizes.py")
    (parts / "sizes.py").write_text("from copied.parts.more import ADDED\n")
    home.write_text(text.format(added=1))
    (tmp_path / "copied" / "caller.py").write_text(READER.format(added=added))
    assert run_copy(tmp_path) == ["2", "0", "1"]
    assert run_copy(tmp_path) == ["2", "1", "0"]
    home.write_text(text.format(added=10))
    assert run_copy(tmp_path) == ["11", "0", "1"]


def test_edited_options_of_the_compiler_make_functions_stale(tmp_path: Path) -> None:
    """They come from another file as a set, of which nothing tells where it came from."""
    package = tmp_path / "copied"
    package.mkdir()
    (package / "options.py").write_text("FAST = {'contract'}\n")
    (package / "caller.py").write_text(
        "from harness.machine.compiled import compiled_with\nfrom copied.options import FAST\n"
        "@compiled_with(fastmath=FAST)\ndef caller(x):\n    return x + 1\n"
    )
    assert run_copy(tmp_path) == ["2", "0", "1"]
    assert run_copy(tmp_path) == ["2", "1", "0"]
    (package / "options.py").write_text("FAST = {'contract', 'reassoc'}\n")
    assert run_copy(tmp_path) == ["2", "0", "1"]


def test_words_about_a_helper_and_types_leave_its_callers_as_they_are(tmp_path: Path) -> None:
    package = tmp_path / "copied"
    parts = package / "parts"
    parts.mkdir(parents=True)
    (parts / "types.py").write_text("Number = int\n")
    (parts / "helper.py").write_text(HELPER.format(added=1))
    (package / "caller.py").write_text(
        "from __future__ import annotations\nfrom copied.parts.types import Number\n"
        + CALLER.replace("caller(x)", "caller(x: Number)")
    )
    assert run_copy(tmp_path) == ["2", "0", "1"]
    (parts / "types.py").write_text("Number = float\n")
    (parts / "helper.py").write_text('"""What it is."""\n# why\n' + HELPER.format(added=1))
    assert run_copy(tmp_path) == ["2", "1", "0"]
