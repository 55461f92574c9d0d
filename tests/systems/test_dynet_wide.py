"""Lattices in DyNet at a hidden size from which on their gates are computed another way."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from harness.values.places import ROOT
from systems.on_dynet.build import why_not_built

PROGRAM = ROOT / "tests" / "support" / "wide_lattices.py"
REASON = why_not_built()
TOLERANCE = 1e-4

pytestmark = [pytest.mark.slow, pytest.mark.dynet]
CPP = "systems.on_dynet.cpp.adapter"
MODELS = {
    "systems.on_dynet.autobatch": {"lattice_lstm", "lattice_gru", "gated_lattice_lstm"},
    CPP: {"lattice_lstm"},
}


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("adapter", MODELS)
@pytest.mark.parametrize("autobatch", ["agenda", "depth"])
def test_wide_lattices_agree_with_the_oracle(adapter: str, autobatch: str) -> None:
    options = {"autobatch": autobatch} | ({} if adapter == CPP else {"build": "source"})
    done = subprocess.run(
        [sys.executable, str(PROGRAM), adapter, json.dumps(options)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    worst = dict(json.loads(line) for line in done.stdout.splitlines())
    assert set(worst) == MODELS[adapter]
    assert max(worst.values()) < TOLERANCE, worst
