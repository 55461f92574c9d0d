"""Products of arrays from compiled code, whole and cut into small ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from harness.engine.cpu_kernels import blas, libraries
from harness.engine.cpu_kernels.blas import (
    LIMIT,
    NEVER,
    ONEDNN_FROM,
    SGEMM,
    Scratch,
    add_outer,
    blas_scratch,
    multiply,
    multiplying,
)
from harness.engine.cpu_kernels.libraries import (
    LIBRARY,
    ONEDNN,
    SMALL,
    one_thread,
    torchs_mkl,
)
from harness.engine.cpu_kernels.memory_kernels import transpose
from harness.errors import UnsupportedTrial
from tests.support.plain_product import add_outer_arrays, multiply_arrays

needs_blas = pytest.mark.skipif(LIBRARY is None, reason="no library shows an sgemm")
needs_mkl = pytest.mark.skipif(torchs_mkl() is None, reason="no MKL is inside torch")
# The largest product that is handed over whole, and from how many rows on oneDNN multiplies.
WAYS = [(0, NEVER), (600, NEVER), (SMALL, NEVER)]
WAYS += [] if ONEDNN is None else [(SMALL, 1), (0, 8)]
WAYS += [] if torchs_mkl() is None else ["torch"]
Way = tuple[int, int] | str


def scratch_of(way: Way) -> Scratch:
    if isinstance(way, str):
        return multiplying(way, 1).scratch
    assert LIBRARY is not None
    return blas_scratch(replace(LIBRARY, limit=way[0]), ONEDNN, way[1])


@needs_blas
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("transposed", "accumulate"), list(product((False, True), repeat=2)))
def test_the_compiled_product_is_numpys(transposed: bool, accumulate: bool, way: Way) -> None:
    scratch = scratch_of(way)
    random = np.random.default_rng(0)
    for n, k, m in (
        (1, 3, 5),
        (7, 16, 4),
        (64, 5, 33),
        (37, 2, 300),
        (0, 4, 4),
        (50, 90, 300),
        (300, 9, 7),
    ):
        weight = random.standard_normal((m, k) if transposed else (k, m)).astype(np.float32)
        x = random.standard_normal((n + 3, k + 5)).astype(np.float32)
        found = random.standard_normal((n + 2, m + 7)).astype(np.float32)
        expected = found.copy()
        # Columns 2 to 2 + k of rows 1 to 1 + n; columns 6 to 6 + m of rows 2 to 2 + n.
        places = (x, k + 5 + 2, k + 5, n, weight, transposed, accumulate)
        multiply(*places, found, 2 * (m + 7) + 6, m + 7, *scratch)
        multiply_arrays(*places, expected, 2 * (m + 7) + 6, m + 7, *scratch)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@needs_blas
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_first", [True, False])
def test_the_compiled_outer_product_is_numpys(way: Way, is_first: bool) -> None:
    scratch = scratch_of(way)
    random = np.random.default_rng(0)
    for n, k, m in ((1, 3, 5), (200, 33, 300), (40, 64, 5), (0, 4, 4), (130, 160, 140)):
        x = random.standard_normal((n + 3, k + 5)).astype(np.float32)
        dy = random.standard_normal((n + 2, m + 7)).astype(np.float32)
        found = random.standard_normal((k, m)).astype(np.float32)
        expected = found.copy()
        places = (x, k + 5 + 2, k + 5, dy, 2 * (m + 7) + 6, m + 7, n)
        for function, out in ((add_outer, found), (add_outer_arrays, expected)):
            written = np.array([int(not is_first)])
            function(*places, out, written, *scratch)
            assert written[0] == 1
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@needs_blas
def test_products_that_threads_share_stay_whole() -> None:
    assert LIBRARY is not None
    limits = [multiplying("auto", n_threads).scratch[0][LIMIT] for n_threads in (2, 1)]
    assert limits == [0, LIBRARY.limit]


@needs_blas
def test_a_library_without_threads_says_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LIBRARY is not None
    monkeypatch.setattr(blas, "LIBRARY", replace(LIBRARY, set_threads=one_thread))
    assert multiplying("auto", 2).n_threads == 1
    monkeypatch.undo()
    assert [multiplying("auto", n).n_threads for n in (2, 1)] == [2, 1]


@needs_blas
def test_openblas_alone_leaves_nothing_to_onednn() -> None:
    chosen = multiplying("openblas", 1)
    assert LIBRARY is not None
    assert chosen.names == LIBRARY.name
    assert chosen.scratch[0][ONEDNN_FROM] == NEVER


@needs_mkl
@needs_blas
def test_torchs_library_is_another_one_and_cuts_nothing() -> None:
    chosen = multiplying("torch", 1)
    assert chosen.names.startswith("MKL (torch ")
    assert chosen.scratch[0][SGEMM] != multiplying("auto", 1).scratch[0][SGEMM]
    assert (chosen.scratch[0][LIMIT], chosen.scratch[0][ONEDNN_FROM]) == (0, NEVER)


def test_a_library_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "torchs_mkl", lambda: None)
    with pytest.raises(UnsupportedTrial, match=r"no MKL .*use blas=openblas"):
        multiplying("torch", 1)
    monkeypatch.setattr(blas, "LIBRARY", None)
    with pytest.raises(UnsupportedTrial, match="no library with sgemm was found"):
        multiplying("openblas", 1)


@pytest.mark.parametrize("shape", [(1, 1), (16, 32), (5, 40), (33, 17)])
def test_a_transposed_copy(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    out = np.empty(shape[::-1], np.float32)
    transpose(matrix, out)
    np.testing.assert_array_equal(out, matrix.T)


def test_what_is_lacking_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "PACKAGED", None)
    monkeypatch.setattr(libraries, "ONEDNN", None)
    monkeypatch.setattr(libraries, "LIBRARY", None)
    asked = "pip install scipy-openblas64 onednn-cpu-gomp"
    assert libraries.multiplies_with() == ("nothing", asked)


@pytest.mark.skipif(libraries.PACKAGED is None, reason="the package is not installed")
def test_openblas_is_the_package_s_and_not_numpys() -> None:
    assert libraries.LIBRARY is libraries.PACKAGED
    numpys = libraries._numpys_openblas()
    assert numpys is None or numpys.name.endswith("of NumPy's wheel")
