"""Arrays that begin at a cache line.

NumPy's begin at any multiple of 16 bytes, so that three of four have every vector of 64 bytes on
two lines: each such load and store takes twice as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LINE_BYTES = 64


def empty(shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """A C-contiguous array of anything, its first element at the beginning of a line."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(n_bytes + LINE_BYTES, dtype=np.uint8)
    begin = -raw.ctypes.data % LINE_BYTES
    return raw[begin : begin + n_bytes].view(dtype).reshape(shape)


def copied(values: NDArray[Any], dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """A copy of such a type."""
    found = empty(values.shape, dtype)
    found[...] = values
    return found
