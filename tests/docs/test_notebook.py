"""docs/notebook.md as a new user follows it: its code runs, and shows the committed numbers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dynbatch
from dynbatch.harness.values.paths import ROOT

PAGE = (ROOT / "docs" / "notebook.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_lists_every_function() -> None:
    listed = re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE)
    assert set(listed) == set(dir(dynbatch)) & set(dynbatch._HOMES)


@pytest.mark.slow
def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "reference").symlink_to(ROOT / "results" / "reference")
    wide = "import pandas as pd\npd.set_option('display.width', 250, 'display.max_columns', 20)\n"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    command = [sys.executable, "-c", wide + "\n".join(BLOCKS)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results" / "speedups.png").stat().st_size > 0
    # DRNN: the engine over the fastest baseline, and ACRoBat over DyNet in the paper.
    assert re.search(r"drnn +torch_levels +2\.3557\d+ .*4\.84", done.stdout), done.stdout
    *_, measured = done.stdout.split("system  batch_size")
    assert measured.count(" ok\n") == 4, measured
    assert len(list((tmp_path / "results" / "raw").rglob("r*.json"))) == 8
