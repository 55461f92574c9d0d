"""Matmuls of the CPU backend, called one by one on arrays of a test."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.pointers import get_address
from dynbatch.harness.engine.cpu_kernels import blas
from dynbatch.harness.engine.cpu_kernels.blas import Scratch
from tests.support.kernel_calls import Reported

Floats = NDArray[np.float32]


@compiled
def _multiply(
    context: int, x: int, x_row: int, n: int, w: int, rows: int, columns: int, transposed: int,
    out: int, out_row: int, start: int, start_row: int,
) -> None:  # fmt: skip
    blas.multiply(
        context, x, x_row, n, w, rows, columns, transposed, out, out_row, start, start_row
    )


@compiled
def _add_outer(
    context: int, x: int, x_row: int, k: int, dy: int, dy_row: int, m: int, n: int, out: int,
    adds: int,
) -> None:  # fmt: skip
    blas.add_outer(context, x, x_row, k, dy, dy_row, m, n, out, adds)


def multiply(
    x: Floats, weight: Floats, out: Floats, scratch: Scratch, *, transposed: bool = False,
    start: Floats | None = None,
) -> None:  # fmt: skip
    """Compute out = start + x W, or start + x W^T; x, out and start may be parts of wider rows.

    A start with one dimension is that of every row.
    """
    reported = Reported(scratch=scratch)
    rows, columns = weight.shape
    _multiply(
        reported.address, get_address(x), x.strides[0], len(x), get_address(weight), rows, columns,
        int(transposed), get_address(out), out.strides[0],
        0 if start is None else get_address(start),
        0 if start is None or start.ndim == 1 else start.strides[0],
    )  # fmt: skip


def add_outer(x: Floats, dy: Floats, out: Floats, scratch: Scratch, *, adds: bool) -> None:
    """Compute out = x^T dy, or add it to out."""
    reported = Reported(scratch=scratch)
    _add_outer(
        reported.address, get_address(x), x.strides[0], x.shape[1], get_address(dy),
        dy.strides[0], dy.shape[1], len(x), get_address(out), int(adds),
    )  # fmt: skip
