"""Pytest plugin: the suite as on an x86-64 CPU with AVX2 and without AVX-512.

`make test CPU=avx2` loads it before anything that reads these variables. Programs that tests start
inherit them; a trial's worker loses them (`harness/measuring/launch.py`), unless a test starts it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

VARIABLES = {
    "NUMBA_CPU_NAME": "x86-64-v3",
    "NUMBA_CPU_FEATURES": "+avx2,+fma",
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # of the engine's oneDNN and of PyTorch's
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
os.environ.update(VARIABLES)


@pytest.fixture(autouse=True, scope="session")
def _workers_keep_the_variables() -> Iterator[None]:
    from harness.measuring import launch

    kept = tuple(name for name in launch._KERNEL_VARIABLES if name not in VARIABLES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "_KERNEL_VARIABLES", kept)
        yield
