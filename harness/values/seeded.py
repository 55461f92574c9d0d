"""Random numbers that are equal on every machine and in every release of NumPy.

Only raw output of PCG64 is used: NumPy promises to keep the streams of bit generators, but not
those of the distributions in Generator (NEP 19).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.errors import ConfigError


def uniforms(n: int, *key: int) -> NDArray[np.float64]:
    """Return n numbers, uniform in [0, 1), that depend on the key alone."""
    return (_raw(n, key) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def shuffled(n: int, *key: int) -> NDArray[np.int64]:
    """Return a permutation of 0..n-1 that depends on the key alone."""
    return np.argsort(_raw(n, key), kind="stable")


def _raw(n: int, key: tuple[int, ...]) -> NDArray[np.uint64]:
    if min(key) < 0:
        raise ConfigError(f"seed={min(key)} is not allowed; give 0 or more")
    return np.random.PCG64(list(key)).random_raw(n)
