"""The engine's own products: NumPy's results, and the same bits for any share of the rows."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from llvmlite import ir
from numpy.typing import NDArray

from harness.compiler.object_code import Loaded, load_ir
from harness.compiler.pointers import address_of, call
from harness.engine.cpu_kernels.blas import OWN, Scratch, multiplying
from harness.engine.cpu_kernels.libraries import LIBRARY
from harness.engine.cpu_kernels.vectors import (
    BLOCK,
    DOTS,
    LANES,
    MOST_ROWS,
    OWN_ROWS,
    OWN_ROWS_OUTER,
    OWN_ROWS_TRANSPOSED,
    WIDE_ROWS,
    is_our_outer,
    is_ours,
    load_products,
    write_sums_of_dots,
    write_sums_of_rows,
)
from tests.support.compiled_products import add_outer, multiply

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
        own, to = x[1 : n + 1, 2 : 2 + k], found[2:, 6:]
        multiply(own, weight, to, scratch, transposed=transposed, adds=accumulate)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("is_first", BOTH)
def test_an_outer_product_is_numpys(columns: int, is_first: bool, scratch: Scratch) -> None:
    for n, k in ((0, 5), (1, 1), (3, 64), (14, 13)):
        x, dy = drawn(n + 3, k + 5)[1 : n + 1, 2 : 2 + k], drawn(n + 2, columns + 7)[2:, 6:-1]
        found = drawn(k, columns)
        expected = x.T @ dy + (0 if is_first else found)
        add_outer(x, dy, found, scratch, adds=not is_first)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def multiply_shares(
    x: Matrix, weight: Matrix, transposed: bool, n_rows: int, scratch: Scratch
) -> Matrix:
    """Return x W or x W^T, computed n_rows rows at a time."""
    n, m = len(x), weight.shape[0 if transposed else 1]
    out = np.empty((n, m), np.float32)
    for i in range(0, n, n_rows):
        multiply(x[i : i + n_rows], weight, out[i:], scratch, transposed=transposed)
    return out


# A vector or two, whole blocks, and a W too large for the fastest cache. With 8 lanes no product
# by the last is the engine's own.
SMALL_W, BLOCKS, LARGE = (4 * LANES, 3 * LANES), (64, 192), (256, 1024)
OWN_CASES = [(size, transposed) for size in (SMALL_W, BLOCKS) for transposed in BOTH]
OWN_CASES += [(LARGE, True), *([(LARGE, False)] if OWN_ROWS else [])]


@pytest.mark.parametrize(("size", "transposed"), OWN_CASES)
def test_any_share_of_own_rows_gives_the_same_bits(
    size: tuple[int, int], transposed: bool, scratch: Scratch
) -> None:
    k, m = size
    n = max(n for n in range(60) if is_ours(n, k, m, transposed))
    assert n > MOST_ROWS
    x, weight = drawn(n, k), drawn(*shape_of(k, m, transposed))
    together = multiply_shares(x, weight, transposed, n, scratch)
    for n_rows in range(1, MOST_ROWS + 2):
        apart = multiply_shares(x, weight, transposed, n_rows, scratch)
        np.testing.assert_array_equal(together, apart)


@pytest.mark.parametrize("transposed", BOTH)
def test_more_rows_than_own_agree_within_rounding(transposed: bool, scratch: Scratch) -> None:
    k, m = LARGE
    n = max(OWN_ROWS_TRANSPOSED if transposed else OWN_ROWS, MOST_ROWS) + 1
    assert not is_ours(n, k, m, transposed)
    x, weight = drawn(n, k), drawn(*shape_of(k, m, transposed))
    together = multiply_shares(x, weight, transposed, n, scratch)
    apart = multiply_shares(x, weight, transposed, 1, scratch)
    np.testing.assert_allclose(together, apart, rtol=1e-5, atol=1e-4)


def test_any_share_of_a_gradients_rows_gives_the_same_bits(scratch: Scratch) -> None:
    n, k, m = 12, 9, 192 + LANES
    assert is_our_outer(n, m)
    x, dy = drawn(n, k), drawn(n, m)
    together, apart = np.empty((k, m), np.float32), np.empty((k, m), np.float32)
    add_outer(x, dy, together, scratch, adds=False)
    for i in range(k):
        add_outer(x[:, i : i + 1], dy, apart[i : i + 1], scratch, adds=False)
    np.testing.assert_array_equal(together, apart)


@cache
def kernel_of(n_rows: int, n_vectors: int, lanes: int) -> Loaded:
    """Compile out = x w for n_rows rows by n_vectors of columns, or x w^T by DOTS rows for none."""
    module = ir.Module()
    if n_vectors:
        write_sums_of_rows(module, "kernel", n_rows, n_vectors, lanes)
    else:
        write_sums_of_dots(module, "kernel", n_rows, lanes)
    return load_ir(str(module))


def run_kernel(n_vectors: int, lanes: int, x: Matrix, w: Matrix, out: Matrix, adds: int) -> None:
    """Run the kernel of as many rows as there are."""
    address = kernel_of(len(x), n_vectors, lanes).address("kernel")
    k, from_w = x.shape[1], (address_of(w), w.strides[0])
    to_out = address_of(out), out.strides[0]
    if n_vectors:
        from_x: tuple[int, ...] = address_of(x), x.strides[0], x.itemsize
        call(address, (*from_x, *from_w, *to_out, k, adds))
    else:
        call(address, (address_of(x), x.strides[0], *from_w, *to_out, k // lanes, adds))


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("blocks", ["dots", "vector", "block", "wide"])
def test_a_kernel_of_any_lanes_gives_the_same_bits_for_any_rows(blocks: str, lanes: int) -> None:
    """Runs both numbers of lanes on any CPU, whichever its products use."""
    transposed = blocks == "dots"
    n_vectors = {"dots": 0, "vector": 1, "block": lanes // 4, "wide": lanes // 2}[blocks]
    k, m = 3 * lanes, n_vectors * lanes or DOTS
    weight, before = drawn(*shape_of(k, m, transposed)), drawn(MOST_ROWS, m)
    most_rows = WIDE_ROWS if blocks == "wide" else MOST_ROWS
    for n, adds in product(range(1, most_rows + 1), (0, 1)):
        x, together, apart = drawn(n, k), before[:n].copy(), before[:n].copy()
        run_kernel(n_vectors, lanes, x, weight, together, adds)
        for i in range(n):
            rows = slice(i, i + 1)
            run_kernel(n_vectors, lanes, x[rows], weight, apart[rows], adds)
        np.testing.assert_array_equal(together, apart)
        exact = x.astype(np.float64) @ (weight.T if transposed else weight) + adds * before[:n]
        np.testing.assert_allclose(together, exact, rtol=1e-5, atol=1e-5)


def test_what_is_no_whole_vector_or_has_many_rows_is_a_librarys() -> None:
    assert not is_ours(1, 64, LANES + 1, False)
    assert not is_ours(1, LANES + 1, 64, True)
    assert not is_ours(1, 64, DOTS + 1, True)
    assert not is_ours(OWN_ROWS + 1, 1024, 1024, False)
    assert not is_ours(OWN_ROWS_TRANSPOSED + 1, 64, 64, True)
    assert not is_our_outer(1, LANES + 1)
    assert not is_our_outer(OWN_ROWS_OUTER + 1, LANES)


def test_a_library_that_is_asked_for_multiplies_all() -> None:
    assert multiplying("auto", 1).scratch[0][OWN] == address_of(load_products()[1])
    assert multiplying("openblas", 1).scratch[0][OWN] == 0
