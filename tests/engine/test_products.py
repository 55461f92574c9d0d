"""Products of tensors."""

from __future__ import annotations

import pytest
import torch

from harness.engine.backends.stepwise import kernels

SHAPES = [(1, 3, 20), (200, 33, 300), (40, 64, 5), (130, 600, 40)]


def _columns(n: int, width: int) -> torch.Tensor:
    """Some columns of a wider matrix, as buffers hold them."""
    return torch.randn((n, width + 7))[:, 3 : 3 + width]


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("n", "k", "m"), SHAPES)
def test_multiply(n: int, k: int, m: int, transposed: bool, accumulate: bool) -> None:
    x, out = _columns(n, k), _columns(n, m)
    weight = torch.randn((m, k)).t() if transposed else torch.randn((k, m))
    expected = x.double() @ weight.double()
    expected += out.double() if accumulate else 0
    kernels.multiply(x, weight, out, accumulate=accumulate)
    torch.testing.assert_close(out, expected.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(("n", "k", "m"), SHAPES)
def test_sum_outer(n: int, k: int, m: int, accumulate: bool) -> None:
    x, dy, out = _columns(n, k), _columns(n, m), torch.randn((k, m))
    expected = x.double().t() @ dy.double() + (out.double() if accumulate else 0)
    kernels.sum_outer(x, dy, out, accumulate=accumulate)
    torch.testing.assert_close(out, expected.float(), rtol=1e-4, atol=1e-4)
