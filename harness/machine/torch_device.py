"""Whether PyTorch can compute on the GPU that the driver shows: asked in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

ASKED = "harness.engine.torch_cuda"  # which imports PyTorch
LIMIT_S = 120.0


@cache
def why_torch_cannot() -> str | None:
    """Say why PyTorch computes on no GPU here, and what to do; None where it does.

    Takes seconds, once a process.
    """
    command = (sys.executable, "-m", ASKED)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"PyTorch does not say within {LIMIT_S:g} s whether it can use it"
    if done.returncode == 0:
        return (done.stdout.strip().splitlines() or [""])[-1] or None
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return f"PyTorch cannot be asked ({last}); see bench-doctor"
