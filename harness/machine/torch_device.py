"""Test in a separate process that PyTorch can use the GPU that the driver reports."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

ASKED = "dynbatch.harness.engine.torch_cuda"  # the module that imports PyTorch
LIMIT_S = 120.0


@cache
def explain_unusable_gpu() -> str | None:
    """Return why PyTorch cannot use a GPU here, and a remedy; None if it can.

    The test takes seconds and runs once per process.
    """
    command = (sys.executable, "-m", ASKED)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"PyTorch did not report within {LIMIT_S:g} s whether it can use the GPU"
    if done.returncode == 0:
        return (done.stdout.strip().splitlines() or [""])[-1] or None
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return f"PyTorch failed ({last}); run bench-doctor"
