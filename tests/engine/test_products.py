"""Products of tensors, whole and cut into small ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from harness.engine.backends.stepwise import products
from harness.engine.cpu_kernels import blas
from harness.engine.cpu_kernels.blas import LIBRARY, LIMIT, SMALL, blas_scratch, set_threads

SHAPES = [(1, 3, 20), (200, 33, 300), (40, 64, 5), (130, 600, 40)]


@pytest.fixture(params=["cut", "whole"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "cut" and LIBRARY is None:
        pytest.skip("neither NumPy nor torch shows an sgemm")
    cuts = request.param == "cut" and LIBRARY is not None
    scratch = blas_scratch(replace(LIBRARY, limit=SMALL)) if cuts else None
    monkeypatch.setattr(products, "SCRATCH", scratch)


def _columns(n: int, width: int) -> torch.Tensor:
    """Some columns of a wider matrix, as buffers hold them."""
    return torch.randn((n, width + 7))[:, 3 : 3 + width]


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("n", "k", "m"), SHAPES)
def test_multiply(n: int, k: int, m: int, transposed: bool, accumulate: bool) -> None:
    x, out = _columns(n, k), _columns(n, m)
    weight = torch.randn((m, k) if transposed else (k, m))
    expected = x.double() @ (weight.t() if transposed else weight).double()
    expected += out.double() if accumulate else 0
    products.multiply(x, weight, out, transposed=transposed, accumulate=accumulate)
    torch.testing.assert_close(out, expected.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(("n", "k", "m"), SHAPES)
def test_sum_outer(n: int, k: int, m: int, accumulate: bool) -> None:
    x, dy, out = _columns(n, k), _columns(n, m), torch.randn((k, m))
    expected = x.double().t() @ dy.double() + (out.double() if accumulate else 0)
    products.sum_outer(x, dy, out, accumulate=accumulate)
    torch.testing.assert_close(out, expected.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(LIBRARY is None, reason="neither NumPy nor torch shows an sgemm")
def test_products_that_threads_share_stay_whole() -> None:
    assert LIBRARY is not None
    assert blas.SCRATCH is not None
    limits = []
    for n_threads in (2, 1):
        set_threads(n_threads)
        limits.append(blas.SCRATCH[0][LIMIT])
    assert limits == [0, LIBRARY.limit]
