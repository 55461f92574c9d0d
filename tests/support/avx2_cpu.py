"""Pytest plugin that emulates an x86-64 CPU with AVX2 and without AVX-512.

`make test CPU=avx2` loads it before any library that reads these variables. They limit compiled
code, oneDNN, OpenBLAS, PyTorch and MKL in the tests' processes and in the workers of trials that
these start. They do not limit NumPy's own loops, XLA, TensorFlow, and results of a C++ compiler.
Commands that tests start as programs remove the variables from their workers
(`harness/measuring/processes/launch.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

VARIABLES = {
    "BENCH_CPU_NAME": "x86-64-v3",
    "BENCH_CPU_FEATURES": "+avx2,+fma",
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # for the engine's oneDNN and PyTorch's
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
os.environ.update(VARIABLES)


@pytest.fixture(autouse=True, scope="session")
def _workers_get_the_variables() -> Iterator[None]:
    """Add the variables to a worker's environment, which is created without them."""
    from dynbatch.harness.measuring.processes import launch

    build: Any = launch.build_worker_environment

    def narrow(spec: Any) -> dict[str, str]:
        return {**build(spec), **VARIABLES}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "build_worker_environment", narrow)
        yield
