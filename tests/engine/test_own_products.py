"""Products of our own against NumPy's, and that no share of the rows changes a bit."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.engine.cpu_kernels.blas import OWN, Scratch, add_outer, multiply, multiplying
from harness.engine.cpu_kernels.libraries import LIBRARY
from harness.engine.cpu_kernels.own_products import (
    BLOCK,
    OWN_ROWS,
    OWN_ROWS_OUTER,
    OWN_ROWS_TRANSPOSED,
    is_our_outer,
    is_ours,
)
from harness.engine.cpu_kernels.vectors import DOTS, LANES

pytestmark = pytest.mark.skipif(LIBRARY is None, reason="no library shows an sgemm")
Matrix = NDArray[np.float32]
BOTH = (False, True)
# Columns of one block, of blocks and single vectors behind them, of one vector alone.
COLUMNS = (BLOCK, 2 * BLOCK + LANES, LANES)


@pytest.fixture(scope="module")
def scratch() -> Scratch:
    return multiplying("auto", 1).scratch


def drawn(*shape: int) -> Matrix:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def shape_of(k: int, m: int, transposed: bool) -> tuple[int, int]:
    return (m, k) if transposed else (k, m)


@pytest.mark.parametrize(("transposed", "accumulate"), list(product(BOTH, repeat=2)))
@pytest.mark.parametrize("columns", COLUMNS)
def test_few_rows_are_multiplied_as_numpy_does(
    columns: int, transposed: bool, accumulate: bool, scratch: Scratch
) -> None:
    k, m = (columns, 3 * DOTS) if transposed else (7, columns)
    weight = drawn(*shape_of(k, m, transposed))
    for n in (0, *range(1, 15), 31):
        assert is_ours(min(n, OWN_ROWS), k, m, transposed)
        x, found = drawn(n + 3, k + 5), drawn(n + 2, m + 7)
        expected, w = found.copy(), weight.T if transposed else weight
        rows = expected[2:, 6 : 6 + m]
        rows[:] = x[1 : n + 1, 2 : 2 + k] @ w + (rows if accumulate else 0)
        at = 2 * (m + 7) + 6
        multiply(x, k + 5 + 2, k + 5, n, weight, transposed, accumulate, found, at, m + 7, *scratch)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("is_first", BOTH)
def test_an_outer_product_is_numpys(columns: int, is_first: bool, scratch: Scratch) -> None:
    for n, k in ((0, 5), (1, 1), (3, 64), (14, 13)):
        x, dy, found = drawn(n + 3, k + 5), drawn(n + 2, columns + 7), drawn(k, columns)
        expected = x[1 : n + 1, 2 : 2 + k].T @ dy[2:, 6 : 6 + columns] + (0 if is_first else found)
        written = np.array([int(not is_first)])
        places = (x, k + 5 + 2, k + 5, dy, 2 * (columns + 7) + 6, columns + 7, n)
        add_outer(*places, found, written, *scratch)
        assert written[0] == 1
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("transposed", BOTH)
def test_rows_by_themselves_are_the_same_bits(transposed: bool, scratch: Scratch) -> None:
    n, k, m = 13, 4 * LANES, 3 * LANES
    x, weight = drawn(n, k), drawn(*shape_of(k, m, transposed))
    together, apart = np.empty((n, m), np.float32), np.empty((n, m), np.float32)
    multiply(x, 0, k, n, weight, transposed, False, together, 0, m, *scratch)
    for i in range(n):
        multiply(x, i * k, k, 1, weight, transposed, False, apart, i * m, m, *scratch)
    np.testing.assert_array_equal(together, apart)


def test_what_is_no_whole_vector_or_has_many_rows_is_a_librarys() -> None:
    assert not is_ours(1, 64, LANES + 1, False)
    assert not is_ours(1, LANES + 1, 64, True)
    assert not is_ours(1, 64, DOTS + 1, True)
    assert not is_ours(OWN_ROWS + 1, 1024, 1024, False)
    assert not is_ours(OWN_ROWS_TRANSPOSED + 1, 64, 64, True)
    assert not is_our_outer(1, LANES + 1)
    assert not is_our_outer(OWN_ROWS_OUTER + 1, LANES)


def test_a_library_that_is_asked_for_multiplies_all() -> None:
    assert multiplying("auto", 1).scratch[0][OWN] == 1
    assert multiplying("openblas", 1).scratch[0][OWN] == 0
