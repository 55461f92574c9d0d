"""Array types, and random numbers that are equal on every machine.

Random numbers use only the raw output of PCG64: NumPy guarantees the streams of bit generators, but
not those of the distributions in Generator (NEP 19).
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.errors import ConfigError

IntArray = NDArray[np.int32]
Ints = IntArray
IntTable = Annotated[Ints, 2]  # number of dimensions, for compiled functions
Longs = NDArray[np.int64]
LongTable = Annotated[Longs, 2]
UnsignedLongs = NDArray[np.uint64]
Floats = NDArray[np.float64]
FloatTable = Annotated[Floats, 2]
Flags = NDArray[np.bool_]
FlagTable = Annotated[Flags, 2]


def as_int_array(values: object) -> IntArray:
    """Return `values` as a read-only, contiguous int32 array."""
    array = np.ascontiguousarray(values, dtype=np.int32)
    array.setflags(write=False)
    return array


def convert_attributes(owner: object, *names: str) -> None:
    """Convert attributes of a frozen instance with as_int_array."""
    for name in names:
        object.__setattr__(owner, name, as_int_array(getattr(owner, name)))


def draw_uniforms(n: int, *key: int) -> Floats:
    """Return n uniform random numbers in [0, 1) that depend only on the key."""
    return (_draw_raw(n, key) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw_permutation(n: int, *key: int) -> Longs:
    """Return a random permutation of 0..n-1 that depends only on the key."""
    return np.argsort(_draw_raw(n, key), kind="stable")


def _draw_raw(n: int, key: tuple[int, ...]) -> UnsignedLongs:
    if min(key) < 0:
        raise ConfigError(f"seed={min(key)} is not allowed: expected at least 0")
    return np.random.PCG64(list(key)).random_raw(n)
