"""numba comes without scipy's linear algebra, and has it as soon as something needs it."""

from __future__ import annotations

import subprocess
import sys

from harness.values.places import ROOT

LOADED = """
import sys
import numba
import numpy as np
from harness.machine.compiled import compiled

@compiled
def doubled(a):
    return np.sum(a) * 2

assert "numba.np.arraymath" not in sys.modules
assert doubled(np.arange(4.0)) == 12.0
assert "numba.np.arraymath" in sys.modules
assert "scipy.linalg" not in sys.modules

@numba.njit
def product(a, b):
    return np.dot(a, b)

a = np.arange(6.0).reshape(2, 3)
assert np.array_equal(product(a, a.T.copy()), a @ a.T)
assert "scipy.linalg" in sys.modules
"""


def test_linear_algebra_is_loaded_where_it_is_compiled_and_not_before() -> None:
    subprocess.run([sys.executable, "-c", LOADED], check=True, cwd=ROOT)
