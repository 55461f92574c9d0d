"""Matmuls from compiled code: by libraries, in one piece and cut, and by the engine's kernels.

The engine's kernels give the same bits for any part of the rows. Libraries report their names.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from llvmlite import ir
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.object_code import Loaded, load_ir
from dynbatch.harness.compiler.pointers import call, get_address
from dynbatch.harness.engine.backend import choose_backend
from dynbatch.harness.engine.backends.compiled.steps import NO_LIMIT
from dynbatch.harness.engine.cpu_kernels import blas, libraries, own_matmuls
from dynbatch.harness.engine.cpu_kernels import product_kernels as products
from dynbatch.harness.engine.cpu_kernels.blas import (
    LIMIT,
    NEVER,
    ONEDNN_FROM,
    OWN,
    Scratch,
    make_blas_scratch,
    prepare_libraries,
)
from dynbatch.harness.engine.cpu_kernels.libraries import LIBRARY, ONEDNN, SMALL
from dynbatch.harness.engine.cpu_kernels.memory_kernels import (
    allocate_aligned,
    pack_columns,
    transpose,
)
from dynbatch.harness.engine.cpu_kernels.own_matmuls import (
    BLOCK,
    OWN_ROWS,
    OWN_ROWS_OUTER,
    OWN_ROWS_TRANSPOSED,
    PACKED_ROWS,
    is_our_outer,
    is_ours,
)
from dynbatch.harness.engine.cpu_kernels.vectors import (
    COLUMNS,
    DOTS,
    LANES,
    MAX_ROWS,
    NAMES,
    WIDE_ROWS,
    load_matmul_kernels,
    write_sums_of_dots,
    write_sums_of_rows,
)
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.values.precision import EXACT, PRECISIONS
from tests.support.kernel_calls import Reported, drawn, run_kernel

needs_blas = pytest.mark.skipif(LIBRARY is None, reason="no library shows an sgemm")
# The largest matmul that is not cut, and the number of rows from which oneDNN multiplies.
WAYS = [(0, NEVER), (600, NEVER), (SMALL, NEVER)]
WAYS += [] if ONEDNN is None else [(SMALL, 1), (0, 8)]
Way = tuple[int, int]
Matrix = NDArray[np.float32]
BOTH = (False, True)
SHAPES = ((1, 3, 5), (7, 16, 4), (64, 5, 33), (0, 4, 4), (50, 90, 300), (300, 9, 7))  # n, k, m


def shape_of(k: int, m: int, transposed: bool) -> tuple[int, int]:
    return (m, k) if transposed else (k, m)


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
    x: Matrix, weight: Matrix, out: Matrix, scratch: Scratch, *, transposed: bool = False,
    start: Matrix | None = None,
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


def add_outer(x: Matrix, dy: Matrix, out: Matrix, scratch: Scratch, *, adds: bool) -> None:
    """Compute out = x^T dy, or add it to out."""
    reported = Reported(scratch=scratch)
    _add_outer(
        reported.address, get_address(x), x.strides[0], x.shape[1], get_address(dy),
        dy.strides[0], dy.shape[1], len(x), get_address(out), int(adds),
    )  # fmt: skip


def assert_products(n: int, k: int, m: int, scratch: Scratch) -> None:
    """Check x W and x W^T for rows of wider matrices, from zeros, from out and from one row."""
    for transposed in BOTH:
        weight, one_row = drawn(*shape_of(k, m, transposed)), drawn(m)
        for form in ("zeros", "out", "one row"):
            x, found = drawn(n + 3, k + 5)[1 : 1 + n, 2 : 2 + k], drawn(n + 2, m + 7)
            out = found[2 : 2 + n, 6 : 6 + m]
            start = {"zeros": None, "out": out, "one row": one_row}[form]
            expected, w = found.astype(np.float64), weight.astype(np.float64)
            rows = expected[2 : 2 + n, 6 : 6 + m]
            rows[:] = x.astype(np.float64) @ (w.T if transposed else w)
            if start is not None:
                rows += start
            multiply(x, weight, found[2:, 6:], scratch, transposed=transposed, start=start)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def assert_outer_products(n: int, k: int, m: int, scratch: Scratch) -> None:
    """Check x^T dy for rows of wider matrices, with and without addition to the result."""
    x, dy = drawn(n + 3, k + 5)[1 : 1 + n, 2 : 2 + k], drawn(n + 2, m + 7)[2:, 6 : 6 + m]
    for adds in BOTH:
        found = drawn(k, m)
        product_of_both = x.astype(np.float64).T @ dy.astype(np.float64)
        expected = product_of_both + adds * found.astype(np.float64)
        add_outer(x, dy, found, scratch, adds=adds)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@needs_blas
@pytest.mark.parametrize("way", WAYS)
def test_compiled_products_are_numpys(way: Way) -> None:
    limit, onednn_from = way
    scratch = make_blas_scratch(replace(LIBRARY, limit=limit), ONEDNN, onednn_from)
    for shape in (*SHAPES, (37, 2, 300)):
        assert_products(*shape, scratch)
    for shape in ((1, 3, 5), (200, 33, 300), (40, 64, 5), (0, 4, 4), (130, 160, 140)):
        assert_outer_products(*shape, scratch)


# --- matmuls of a plan's steps ---


def test_a_copy_takes_the_place_of_a_matrix_for_functions_of_many_rows(scratch: Scratch) -> None:
    reported, n, k, m = Reported(scratch=scratch), 9, 12, 8
    x, w, copy, out = drawn(n, k), drawn(m, k), drawn(k, m), np.empty((n, m), np.float32)
    per_vertex, is_transposed, adds, has_bias, copies_from, is_packed = 1, 1, 0, 0, 50, 0
    constants = (
        per_vertex, m, k, is_transposed, adds, has_bias, copies_from, is_packed, NO_LIMIT
    )  # fmt: skip
    for n_rows, expected in ((49, x @ w.T), (50, x @ copy)):
        operands = (x, out, w, w, copy, np.array([n_rows], np.int64))
        run_kernel(products.multiply_rows, operands, constants, n, reported)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_a_packed_copy_is_used_between_its_limits_for_up_to_packed_rows_at_once(
    scratch: Scratch,
) -> None:
    """The copy is of another matrix, so that each result names the matrix that was read."""
    reported, k, m = Reported(scratch=scratch), 12, 2 * BLOCK
    w, other, packed = drawn(k, m), drawn(k, m) + 1, allocate_aligned((k * m,))
    pack_columns(get_address(other), k, m, get_address(packed))
    constants = (1, k, m, 0, 0, 0, 50, 1, 60)
    few, many = 9, PACKED_ROWS + 1
    for n, n_of_function, read in (
        (few, 49, w), (few, 50, other), (few, 60, other), (few, 61, w), (many, 60, w)
    ):  # fmt: skip
        x, out = drawn(n, k), np.empty((n, m), np.float32)
        operands = (x, out, w, w, packed, np.array([n_of_function], np.int64))
        run_kernel(products.multiply_rows, operands, constants, n, reported)
        np.testing.assert_allclose(out, x @ read, rtol=1e-4, atol=1e-4)


@needs_blas
def test_products_that_threads_share_stay_whole() -> None:
    limits = [prepare_libraries("auto", n_threads).scratch[0][LIMIT] for n_threads in (2, 1)]
    assert limits == [0, LIBRARY.limit]


@needs_blas
def test_requested_library_computes_all_products() -> None:
    assert prepare_libraries("auto", 1).scratch[0][OWN] == get_address(load_matmul_kernels()[1])
    chosen = prepare_libraries("openblas", 1)
    assert chosen.names == LIBRARY.name
    assert chosen.scratch[0][OWN] == 0
    assert chosen.scratch[0][ONEDNN_FROM] == NEVER


def test_missing_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "LIBRARY", None)
    with pytest.raises(UnsupportedTrial, match="no library with sgemm found"):
        prepare_libraries("openblas", 1)


@pytest.mark.parametrize("shape", [(1, 1), (16, 32), (5, 40), (33, 17)])
def test_a_transposed_copy(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    out = np.empty(shape[::-1], np.float32)
    square = int(load_matmul_kernels()[1][NAMES.index("transpose_square")])
    transpose(square, get_address(matrix), *shape, get_address(out))
    np.testing.assert_array_equal(out, matrix.T)


def test_missing_libraries_are_listed_with_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "PACKAGED", None)
    monkeypatch.setattr(libraries, "ONEDNN", None)
    monkeypatch.setattr(libraries, "LIBRARY", None)
    asked = "pip install scipy-openblas64 onednn-cpu-gomp"
    assert libraries.describe_libraries() == ("nothing", asked)


@pytest.mark.skipif(libraries.PACKAGED is None, reason="the package is not installed")
def test_openblas_is_the_package_s_and_not_numpys() -> None:
    assert libraries.LIBRARY is libraries.PACKAGED
    numpys = libraries._load_numpy_openblas()
    assert numpys is None or numpys.name.endswith("of NumPy's wheel")


# Columns of one block, of blocks followed by a vector, of one vector, and of one that is not full.
WHOLE_COLUMNS = (BLOCK, 2 * BLOCK + LANES, LANES)
ANY_COLUMNS = (*WHOLE_COLUMNS, 1, LANES - 1, BLOCK - 1, BLOCK + 1, 2 * BLOCK + LANES + 3)


@pytest.fixture(scope="module")
def scratch() -> Scratch:
    if LIBRARY is None:
        pytest.skip("no library shows an sgemm")
    return prepare_libraries("auto", 1).scratch


@pytest.mark.parametrize("columns", [c for c in ANY_COLUMNS if c % COLUMNS == 0])
def test_few_rows_are_multiplied_as_numpy_does(columns: int, scratch: Scratch) -> None:
    assert is_ours(OWN_ROWS, 7, columns, False)
    assert is_ours(OWN_ROWS, columns, 3 * DOTS, True) == (columns % LANES == 0)
    for n in (0, *range(1, 15), 31):
        assert_products(n, 7, columns, scratch)
        assert_products(n, columns, 3 * DOTS, scratch)
    for n, k in ((0, 5), (1, 1), (3, 64), (14, 13)):
        assert_outer_products(n, k, columns, scratch)


def multiply_shares(
    x: Matrix, weight: Matrix, transposed: bool, n_rows: int, scratch: Scratch
) -> Matrix:
    """Return x W or x W^T, computed n_rows rows per call."""
    n, m = len(x), weight.shape[0 if transposed else 1]
    out = np.empty((n, m), np.float32)
    for i in range(0, n, n_rows):
        multiply(x[i : i + n_rows], weight, out[i:], scratch, transposed=transposed)
    return out


# A few vectors, whole blocks, and a W that is too large for the L1 cache. With 8 lanes, the engine
# has no kernels for the last.
SMALL_W, BLOCKS, LARGE = (4 * LANES, 3 * LANES), (64, 192), (256, 1024)
OWN_CASES = [(size, transposed) for size in (SMALL_W, BLOCKS) for transposed in BOTH]
OWN_CASES += [(LARGE, True), *([(LARGE, False)] if OWN_ROWS else [])]


@pytest.mark.parametrize(("size", "transposed"), OWN_CASES)
def test_any_share_of_own_rows_gives_the_same_bits(
    size: tuple[int, int], transposed: bool, scratch: Scratch
) -> None:
    k, m = size
    n = max(n for n in range(60) if is_ours(n, k, m, transposed))
    assert n > MAX_ROWS
    x, weight = drawn(n, k), drawn(*shape_of(k, m, transposed))
    together = multiply_shares(x, weight, transposed, n, scratch)
    for n_rows in range(1, MAX_ROWS + 2):
        apart = multiply_shares(x, weight, transposed, n_rows, scratch)
        np.testing.assert_array_equal(together, apart)


@pytest.mark.parametrize("transposed", BOTH)
def test_more_rows_than_own_agree_within_rounding(transposed: bool, scratch: Scratch) -> None:
    k, m = LARGE
    n = max(OWN_ROWS_TRANSPOSED if transposed else OWN_ROWS, MAX_ROWS) + 1
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
def kernel_of(n_rows: int, n_vectors: int, lanes: int, is_partial: bool) -> Loaded:
    """Compile out = x w for n_rows rows by n_vectors of columns, or x w^T by DOTS rows for 0."""
    module = ir.Module()
    if n_vectors:
        write_sums_of_rows(module, "kernel", n_rows, n_vectors, lanes, is_partial=is_partial)
    else:
        write_sums_of_dots(module, "kernel", n_rows, lanes)
    return load_ir(str(module))


def run_own(n_vectors: int, lanes: int, x: Matrix, w: Matrix, out: Matrix, adds: int) -> None:
    """Run the kernel for the number of rows of x."""
    n_last = out.shape[1] % lanes if n_vectors else 0
    address = kernel_of(len(x), n_vectors, lanes, n_last > 0).find_address("kernel")
    k, from_w = x.shape[1], (get_address(w), w.strides[0])
    to_out = get_address(out), out.strides[0]
    if n_vectors:
        from_x: tuple[int, ...] = get_address(x), x.strides[0], x.itemsize
        call(address, (*from_x, *from_w, *to_out, k, to_out[0] * adds, to_out[1], n_last))
    else:
        call(address, (get_address(x), x.strides[0], *from_w, *to_out, k // lanes, adds))


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("blocks", ["dots", "vector", "block", "wide", "partial"])
def test_a_kernel_of_any_lanes_gives_the_same_bits_for_any_rows(blocks: str, lanes: int) -> None:
    """Both numbers of lanes run on any CPU, whichever number its matmuls use."""
    transposed = blocks == "dots"
    n_vectors = {"dots": 0, "vector": 1, "wide": lanes // 2}.get(blocks, lanes // 4)
    k, m = 3 * lanes, n_vectors * lanes - (3 if blocks == "partial" else 0) or DOTS
    weight, before = drawn(*shape_of(k, m, transposed)), drawn(MAX_ROWS, m)
    most_rows = WIDE_ROWS if blocks == "wide" else MAX_ROWS
    for n, adds in product(range(1, most_rows + 1), (0, 1)):
        x, together, apart = drawn(n, k), before[:n].copy(), before[:n].copy()
        run_own(n_vectors, lanes, x, weight, together, adds)
        for i in range(n):
            rows = slice(i, i + 1)
            run_own(n_vectors, lanes, x[rows], weight, apart[rows], adds)
        np.testing.assert_array_equal(together, apart)
        exact = x.astype(np.float64) @ (weight.T if transposed else weight) + adds * before[:n]
        np.testing.assert_allclose(together, exact, rtol=1e-5, atol=1e-5)


def test_many_rows_and_partial_vectors_of_dots_go_to_a_library() -> None:
    assert not is_ours(1, LANES + 1, 64, True)
    assert not is_ours(1, 64, DOTS + 1, True)
    assert not is_ours(OWN_ROWS + 1, 1024, 1024, False)
    assert not is_ours(OWN_ROWS_TRANSPOSED + 1, 64, 64, True)
    assert not is_our_outer(OWN_ROWS_OUTER + 1, LANES)


def test_without_masks_partial_vectors_go_to_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_matmuls, "COLUMNS", LANES)
    assert not is_ours(1, 64, LANES + 1, False)
    assert not is_our_outer(1, LANES + 1)
    assert not own_matmuls.is_packed(256, 256 + 1)


# --- libraries ---


def test_libraries_tell_versions_and_kernels() -> None:
    reported = "OpenBLAS 0.3.30  USE64BITINT DYNAMIC_ARCH NO_AFFINITY SkylakeX MAX_THREADS=64"
    parse_name = libraries.parse_openblas_name
    assert parse_name(reported) == "OpenBLAS 0.3.30 (SkylakeX)"
    assert parse_name("OpenBLAS by  somebody") == "OpenBLAS by somebody"
    assert parse_name("") == "OpenBLAS"
    codes = (0x7, 0xFEF, 0xABC)
    loaded = [SimpleNamespace(dnnl_get_effective_cpu_isa=lambda code=code: code) for code in codes]
    found = list(map(libraries.find_onednn_kernels, [*loaded, object()]))
    assert found[:2] == ["AVX2", "AVX-512 AMX"]
    assert found[2] == "0xabc", "newer ones have a number"
    assert found[3] == "?", "an old library does not tell"
    assert libraries.describe_numpy_blas().split()[1:], "it names a version"


@needs_blas
def test_the_table_of_kernels_lives_as_long_as_its_address_may_be_stored() -> None:
    """Scratch arrays keep only the address, and a cleared cache must not free the table."""
    load_matmul_kernels.cache_clear()
    address = int(make_blas_scratch(LIBRARY, own=True)[0][OWN])
    words = (ctypes.c_int64 * len(NAMES)).from_address(address)
    before = list(words)
    load_matmul_kernels.cache_clear()
    taken = [np.full(len(NAMES), -1, dtype=np.int64) for _ in range(64)]  # memory that was freed
    assert list(words) == before
    assert len(taken) == 64


@pytest.mark.parametrize("precision", sorted({*PRECISIONS} - {EXACT}))
def test_only_exact_matmuls_run_on_a_cpu(precision: str) -> None:
    with pytest.raises(UnsupportedTrial, match=f"precision={precision} needs backend=cuda"):
        choose_backend(Switches(backend="compiled", precision=precision), "cpu")
