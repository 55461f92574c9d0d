"""Arrays that are an address and a shape: read, written and handed on as NumPy does it."""

from __future__ import annotations

import numba
import numpy as np

from harness.engine.cpu_kernels.addresses import address_of
from harness.engine.cpu_kernels.bare_tables import float_matrix, float_vector, int64_vector
from harness.machine.bare import array_of, part, reshaped
from harness.machine.pieces import by_name


@numba.njit
def _sum_up(x: np.ndarray, first: int, out: np.ndarray) -> int:  # pragma: no cover - compiled
    """As its caller sees x: shape, strides, size, and the sum of every row."""
    for m in range(x.shape[0]):
        out[first + m] = x[m].sum()
    return x.size * 1000 + x.strides[0] * 10 + x.itemsize


_summed = by_name(_sum_up)


@numba.njit  # of which nothing is kept: it would not be compiled anew after an edit of bare.py
def _use(places: int) -> tuple:  # pragma: no cover - compiled
    x, sums, rows = float_matrix(places, 0, 3), float_vector(places, 1), int64_vector(places, 2)
    row = x[rows[1]]
    row[0] += np.float32(10.0)
    second = part(x, 2, 2)
    second[1][2] = np.float32(-1.0)
    whole = _summed(x, 0, sums)
    wide = reshaped(part(x, 0, 2), 1, 6)
    flat = part(part(sums, 4, 2), 1, 1)
    wide_told = _summed(wide, 0, flat)
    columns = array_of(x)[:, 1:3]
    cut = part(columns, 3, 1)
    told = _summed(part(second, 1, 1), 1, part(sums, 5, 2))
    return whole, wide_told, told, len(x), len(rows), len(row), cut[0, 1], array_of(x).shape[1]


def test_it_is_the_array_that_it_stands_for() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    sums, rows = np.zeros(7, dtype=np.float32), np.array([3, 1])
    table = np.array([[address_of(array), len(array)] for array in (x, sums, rows)])
    found = _use(address_of(table))
    expected = np.arange(12, dtype=np.float32).reshape(4, 3)
    expected[1, 0] += 10
    expected[3, 2] = -1
    assert x.tolist() == expected.tolist()
    whole, wide, last = 12 * 1000 + 12 * 10 + 4, 6 * 1000 + 24 * 10 + 4, 3 * 1000 + 12 * 10 + 4
    assert found == (whole, wide, last, 4, 2, 3, -1.0, 3)
    by_rows = expected.sum(axis=1).tolist()
    assert sums.tolist() == [*by_rows, 0.0, expected[:2].sum(), by_rows[3]]
