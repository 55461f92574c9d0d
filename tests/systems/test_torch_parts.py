"""PyTorch's faster ways compute what its plain ones do."""

from __future__ import annotations

import pytest
import torch

from systems.on_torch.parts import nonlinear, products
from systems.on_torch.parts.products import Repeated


@pytest.mark.parametrize("n_rows", [1, 40])
@pytest.mark.parametrize("in_place", [False, True])
def test_tanh_by_sigmoid_is_tanh(n_rows: int, in_place: bool) -> None:
    """Of columns of a wider tensor, large numbers and tiny ones."""
    whole = torch.linspace(-30, 30, n_rows * 128).view(n_rows, 128)
    whole[:, 7] = 1e-5
    x, kept = whole[:, 3:99], whole.clone()
    assert (x.numel() < nonlinear.LEAST) == (n_rows == 1)
    expected = torch.tanh(x.double())
    found = nonlinear.tanh(x, x if in_place else None)
    assert (found - expected).abs().max() < 2e-7
    if in_place:
        kept[:, 3:99] = found
    assert torch.equal(whole, kept)  # nothing else is written


@pytest.mark.parametrize("n_rows", [0, 1, 3, 70])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_weight_in_another_layout_gives_the_same_products(
    monkeypatch: pytest.MonkeyPatch, n_rows: int, transposed: bool, packed: bool
) -> None:
    monkeypatch.setattr(products, "LEAST_PACKED", 1 if packed else 1 << 60)
    monkeypatch.setattr(products, "LEAST_BY_PACKED", 2 * 20 * 12)  # rows of both ways
    torch.manual_seed(0)
    weight = torch.randn(12, 20).t() if transposed else torch.randn(20, 12)
    x = torch.randn(n_rows, 30)[:, 5:17]
    repeated = Repeated(weight)
    assert (repeated.packed is not None) == (packed and products.ONEDNN)
    torch.testing.assert_close(repeated(x), x @ weight.t())
