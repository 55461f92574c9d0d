"""Frozen arrays of integers: what instances, graphs and schedules are made of."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int32]
Ints = IntArray
IntTable = Annotated[Ints, 2]  # of two dimensions, as compiled functions want to know
Longs = NDArray[np.int64]
LongTable = Annotated[Longs, 2]
UnsignedLongs = NDArray[np.uint64]
Floats = NDArray[np.float64]
FloatTable = Annotated[Floats, 2]
Flags = NDArray[np.bool_]
FlagTable = Annotated[Flags, 2]


def int_array(values: object) -> IntArray:
    """Return `values` as a read-only, contiguous int32 array."""
    array = np.ascontiguousarray(values, dtype=np.int32)
    array.setflags(write=False)
    return array
