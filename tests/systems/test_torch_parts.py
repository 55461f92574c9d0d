"""Faster PyTorch implementations agree with plain ones: matmuls, rows, and the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from dynbatch.harness.measuring.checks.reference_check import compute_relative_error
from dynbatch.systems.on_torch import layers, products
from dynbatch.systems.on_torch.layers import OutputLayer
from dynbatch.systems.on_torch.models.lstm import StepStates, run_lstm_steps
from dynbatch.systems.on_torch.products import FixedProduct, Repeated, SideWeights
from dynbatch.systems.on_torch.rows import arrange_columns

CPU = torch.device("cpu")
LENGTHS = ([1], [3, 3], [1, 5, 2, 5], [7, 1, 1, 4, 2])


@pytest.mark.parametrize("n_rows", [1, 40])
@pytest.mark.parametrize("in_place", [False, True])
def test_tanh_by_sigmoid_is_tanh(n_rows: int, in_place: bool) -> None:
    """Columns of a wider tensor, with large and tiny numbers."""
    whole = torch.linspace(-30, 30, n_rows * 128).view(n_rows, 128)
    whole[:, 7] = 1e-5
    x, kept = whole[:, 3:99], whole.clone()
    assert (x.numel() < products.LEAST_TANH) == (n_rows == 1)
    expected = torch.tanh(x.double())
    found = products.tanh(x, x if in_place else None)
    assert (found - expected).abs().max() < 2e-7
    if in_place:
        kept[:, 3:99] = found
    assert torch.equal(whole, kept)  # other columns are unchanged


@pytest.mark.parametrize("n_rows", [0, 1, 3, 70])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_weight_in_another_layout_gives_the_same_products(
    monkeypatch: pytest.MonkeyPatch, n_rows: int, transposed: bool, packed: bool
) -> None:
    monkeypatch.setattr(products, "ONEDNN", products.HAS_ONEDNN)
    monkeypatch.setattr(products, "LEAST_PACKED", 1 if packed else 1 << 60)
    monkeypatch.setattr(products, "LEAST_BY_PACKED", 2 * 20 * 12)  # numbers of rows use both ways
    torch.manual_seed(0)
    weight = torch.randn(12, 20).t() if transposed else torch.randn(20, 12)
    x = torch.randn(n_rows, 30)[:, 5:17]
    repeated = Repeated(weight)
    assert (repeated.packed is not None) == (packed and products.HAS_ONEDNN)
    torch.testing.assert_close(repeated(x), x @ weight.t())


@pytest.mark.parametrize("turned", [False, True])
def test_a_product_reads_no_matrix_with_gaps(turned: bool) -> None:
    """For matrices with gaps oneDNN uses generic code, which is hundreds of times slower."""
    wide = torch.randn(7, 12)
    weight = wide[:, 2:6].t() if turned else wide[:, 2:6]
    found = products.make_dense(weight)
    assert torch.equal(found, weight)
    assert found.is_contiguous() or found.t().is_contiguous()


@pytest.mark.parametrize("n_sides", [1, 2])
@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("least", [0, 1 << 60])
def test_sides_have_matrices_of_their_own(
    monkeypatch: pytest.MonkeyPatch, n_sides: int, onednn: bool, least: int
) -> None:
    """One call per side, one call for both sides, and their derivatives have the same results."""
    monkeypatch.setattr(products, "ONEDNN", onednn and products.HAS_ONEDNN)
    monkeypatch.setattr(products, "LEAST", least)
    torch.manual_seed(1)
    weights = [torch.randn(4, 3, requires_grad=True) for _ in range(n_sides)]
    bias, x = torch.randn(4, requires_grad=True), torch.randn(5, n_sides, 3, requires_grad=True)
    wanted = torch.stack([x[:, k] @ w.t() + bias for k, w in enumerate(weights)], 1).tanh()
    d = torch.randn_like(wanted)
    own = SideWeights.from_rows(weights, bias)
    with torch.no_grad():
        found = torch.empty_like(wanted)
        own.forward(x, torch.tanh, found)
        assert torch.allclose(found, wanted, atol=1e-6)
        sums = d * (1 - found**2)
        found_by_hand = [own.backward(sums), *own.gradients(sums, x)[0], own.gradients(sums, x)[1]]
    by_torch = torch.autograd.grad(wanted, [x, *weights, bias], d)
    for value, right in zip(found_by_hand, by_torch, strict=True):
        assert torch.allclose(value, right, atol=1e-5)


@pytest.mark.parametrize("n", [1, 64])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("k", [8, 512])
@pytest.mark.parametrize("onednn", [True, False])
def test_products_give_new_memory_or_add(
    monkeypatch: pytest.MonkeyPatch, n: int, k: int, has_bias: bool, onednn: bool
) -> None:
    """Results may be overwritten without changing the next pass or the input."""
    monkeypatch.setattr(products, "ONEDNN", onednn and products.HAS_ONEDNN)
    x, weight = torch.randn(n, k), torch.randn(k, 600) / k**0.5
    bias = torch.randn(600) if has_bias else None
    by, x_before = FixedProduct(weight, bias), x.clone()
    assert (by.packed is None) == (k == 8 or not products.ONEDNN)
    expected = x @ weight
    with torch.inference_mode():
        for _ in range(2):
            found = by(x)
            torch.testing.assert_close(found, expected + (0.0 if bias is None else bias))
            found.fill_(1.0)
            assert by.add_to(found, x) is found
            torch.testing.assert_close(found, expected + 1.0)
    assert torch.equal(x, x_before)


@pytest.mark.parametrize("way", ["in_place", "chunked", "whole"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("onednn", [True, False])
def test_every_way_to_the_loss_finds_the_same(
    monkeypatch: pytest.MonkeyPatch, way: Any, bias: bool, onednn: bool
) -> None:
    """Cases: several chunks of rows, logits far apart, and a loss scaled after the layer."""
    monkeypatch.setattr(layers, "CHUNK_BYTES", 200)  # 4 rows
    monkeypatch.setattr(products, "ONEDNN", onednn and products.HAS_ONEDNN)
    torch.manual_seed(1)
    layer = OutputLayer(5, 11, bias=bias, way=way)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=40.0)
    hidden, labels = torch.randn(13, 5, requires_grad=True), torch.randint(11, (13,))
    leaves = [hidden, *layer.parameters()]
    found = torch.autograd.grad(2.5 * layer.loss(hidden, labels), leaves)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    logits = exact[0] @ exact[1] + (exact[2] if bias else 0.0)
    loss = functional.cross_entropy(logits, labels, reduction="sum")
    assert layer.loss(hidden, labels).item() == pytest.approx(loss.item(), rel=1e-5)
    for value, wanted in zip(found, torch.autograd.grad(2.5 * loss, exact), strict=True):
        assert compute_relative_error(value.numpy(), wanted.numpy()) < 1e-4


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_steps_of_inference_keep_one_state_a_sentence(lengths: list[int], started: bool) -> None:
    made: list[StepStates] = []

    class Reported(StepStates):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            made.append(self)

    torch.manual_seed(1)
    k, n, h = len(lengths), sum(lengths), 3
    x, W, U, b = (torch.randn(size) for size in [(n, 5), (4 * h, 5), (4 * h, h), (4 * h,)])
    start = torch.randn(k, 2 * h) if started else None
    plan = arrange_columns(np.array(lengths), CPU)
    wanted = run_lstm_steps(x, W, U, b, start, plan, Reported)
    with torch.inference_mode():
        found = run_lstm_steps(x, W, U, b, start, plan, Reported)
    assert all(map(torch.allclose, found, wanted))
    assert [len(states.c) for states in made] == [k + n, k]
    assert [len(states.tanh_c) for states in made] == [n, k]
