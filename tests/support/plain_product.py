"""What compiled products must compute, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

FLOAT_BYTES = 4


def multiply_arrays(
    x: Any, x_at: int, x_stride: int, n: int, weight: Any, transposed: bool, accumulate: bool,
    out: Any, out_at: int, out_stride: int, sizes: Any, letters: Any, factors: Any,
) -> None:  # fmt: skip
    """The same arguments as harness.engine.cpu_kernels.blas.multiply."""
    matrix = weight.T if transposed else weight
    k, m = matrix.shape
    source = _rows(x, x_at, x_stride, n, k)
    target = _rows(out, out_at, out_stride, n, m)
    target[...] = source @ matrix + (target if accumulate else 0)


def add_outer_arrays(
    x: Any, x_at: int, x_stride: int, dy: Any, dy_at: int, dy_stride: int, n: int,
    out: Any, written: Any, sizes: Any, letters: Any, factors: Any,
) -> None:  # fmt: skip
    """The same arguments as harness.engine.cpu_kernels.blas.add_outer."""
    left = _rows(x, x_at, x_stride, n, out.shape[0])
    right = _rows(dy, dy_at, dy_stride, n, out.shape[1])
    out[...] = left.T @ right + (out if written[0] else 0)
    written[0] = 1


def _rows(array: Any, at: int, stride: int, n: int, width: int) -> Any:
    flat = array.reshape(-1)[at:]
    return np.lib.stride_tricks.as_strided(
        flat, (n, width), (FLOAT_BYTES * stride, FLOAT_BYTES), writeable=True
    )
