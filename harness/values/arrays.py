"""Frozen arrays of integers: what instances, graphs and schedules are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int32]


def int_array(values: object) -> IntArray:
    """Return `values` as a read-only, contiguous int32 array."""
    array = np.ascontiguousarray(values, dtype=np.int32)
    array.setflags(write=False)
    return array
