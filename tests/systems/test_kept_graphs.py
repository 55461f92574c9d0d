"""What torch.compile compiled is found by other processes, wherever each has its own folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.machine.caches import NAME
from harness.values.places import ROOT
from systems.on_torch.compiled import _compiler

FOLDER = "inductor"
PROGRAM = """
import os, torch
from harness.machine import facts
facts.cpu_fingerprint = lambda: os.environ["TESTED_CPU"]
from torch._dynamo.utils import counters
from systems.on_torch.compiled import graphs_kept
with graphs_kept("a test"):
    found = torch.compile(lambda x: torch.tanh(x) * 2)(torch.zeros(4))
print(float(found.sum()), counters["inductor"]["fxgraph_cache_hit"])
print(os.environ["TORCHINDUCTOR_CACHE_DIR"])
"""


def run(home: Path, cpu: str = "one CPU") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=os.environ | {"XDG_CACHE_HOME": str(home), "TESTED_CPU": cpu},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *found, folder = done.stdout.split()
    assert not Path(folder).exists()
    return found


@pytest.mark.slow
@pytest.mark.skipif(_compiler() is None, reason="torch.compile needs a C++ compiler")
def test_graphs_are_found_again(tmp_path: Path) -> None:
    assert run(tmp_path) == ["0.0", "0"]
    assert run(tmp_path) == ["0.0", "1"]
    assert len(list((tmp_path / NAME / FOLDER).iterdir())) == 1


@pytest.mark.slow
@pytest.mark.skipif(_compiler() is None, reason="torch.compile needs a C++ compiler")
def test_graphs_of_another_cpu_are_not_found(tmp_path: Path) -> None:
    assert run(tmp_path) == ["0.0", "0"]
    assert run(tmp_path, "another CPU") == ["0.0", "0"]
