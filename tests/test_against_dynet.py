"""Our agenda and depth policies against real DyNet: the same batches, in the same order."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from random_graphs import graph_of

from harness.policies import load_policy

PROGRAM = Path(__file__).with_name("dynet_batches.py")


@pytest.mark.dynet
@pytest.mark.skipif(find_spec("_dynet") is None, reason="DyNet is not installed")
@pytest.mark.parametrize(("policy", "mode"), [("agenda", 1), ("depth", 2)])
def test_batches_are_those_of_dynet(policy: str, mode: int, tmp_path: Path) -> None:
    file = tmp_path / "graph.json"
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(mode), str(file)],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROGRAM.parents[1],
        env={"PYTHONPATH": str(PROGRAM.parents[1])},
    )
    assert done.returncode == 0, done.stderr
    theirs = [int(size) for size in re.findall(r"BatchSize:(\d+)", done.stdout + done.stderr)]
    schedule = load_policy(policy)(graph_of(**json.loads(file.read_text())))
    ours = np.diff(schedule.starts).tolist()
    assert len(theirs) > 50
    assert ours == theirs
