"""Pytest plugin: tests as on an x86-64 CPU with AVX2 and without AVX-512.

`make test CPU=avx2` loads it before anything that reads these variables. Compiled code, oneDNN,
OpenBLAS, PyTorch and MKL are narrow in the tests' processes and in workers of trials that these
start. NumPy's own loops, XLA, TensorFlow and what a C++ compiler builds are not. Commands that
tests start as programs take the variables from their workers (`harness/measuring/launch.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

VARIABLES = {
    "BENCH_CPU_NAME": "x86-64-v3",
    "BENCH_CPU_FEATURES": "+avx2,+fma",
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # of the engine's oneDNN and of PyTorch's
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
os.environ.update(VARIABLES)


@pytest.fixture(autouse=True, scope="session")
def _workers_get_the_variables() -> Iterator[None]:
    """Give them back to a worker, after its environment was made without them."""
    from harness.measuring import launch

    supervise: Any = launch.supervise

    def narrow(interpreter: str, child: Any, environment: Mapping[str, str], *rest: Any) -> Any:
        return supervise(interpreter, child, {**environment, **VARIABLES}, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "supervise", narrow)
        yield
