"""PyTorch on trees: rows of batches, places of matrices, products of sides, compiled cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from harness.contracts.model import initial_weights
from harness.contracts.system import RunSettings, System
from harness.measuring.clock import NullClock
from harness.measuring.reference_check import relative_error
from harness.values.instances import Tree
from systems.on_torch.compiled import Adapter as Compiled
from systems.on_torch.eager import Adapter as Eager
from systems.on_torch.levels import Adapter as Levels
from systems.on_torch.parts import products
from systems.on_torch.parts.side_products import SideWeights
from tests.support.run_adapter import CASES, SIZES, random_tree

CPU = torch.device("cpu")
LEAVES = ((1,), (1, 1), (2,), (5, 1, 9), (1, 2, 9, 4, 13))
TREE_CASES = ("tree_lstm", "tree_lstm_2type", "tree_gru", "mv_rnn")


def trees_of(leaves: Sequence[int]) -> list[Tree]:
    rng = np.random.default_rng(len(leaves))
    return [random_tree(n, SIZES, rng) for n in leaves]


def settings(mode: str = "train") -> RunSettings:
    return RunSettings(mode, "cpu", 1, 4, 0.2, 0)


def found_by(adapter: type[System], case: str, mode: str = "train") -> dict[str, Any]:
    system = adapter(settings(mode))
    system.prepare(CASES[case].model, initial_weights(CASES[case].model, seed=0))
    return found_in(system, CASES[case].instances)


def found_in(system: System, trees: Sequence[Tree]) -> dict[str, Any]:
    system.load(trees)
    system.run(NullClock(), update=False)
    result = system.result()
    return {"loss": np.array(result.loss), "outputs": result.outputs, **result.gradients}


@pytest.mark.parametrize("n_sides", [1, 2])
@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("least", [0, 1 << 60])
def test_sides_have_matrices_of_their_own(
    monkeypatch: pytest.MonkeyPatch, n_sides: int, onednn: bool, least: int
) -> None:
    """A call for each side or one for both, and their derivatives, find the same."""
    monkeypatch.setattr(products, "ONEDNN", onednn and products.ONEDNN)
    monkeypatch.setattr(products, "LEAST", least)
    torch.manual_seed(1)
    weights = [torch.randn(4, 3, requires_grad=True) for _ in range(n_sides)]
    bias, x = torch.randn(4, requires_grad=True), torch.randn(5, n_sides, 3, requires_grad=True)
    wanted = torch.stack([x[:, k] @ w.t() + bias for k, w in enumerate(weights)], 1).tanh()
    d = torch.randn_like(wanted)
    own = SideWeights.of(weights, bias)
    with torch.no_grad():
        found = torch.empty_like(wanted)
        own.forward(x, torch.tanh, found)
        assert torch.allclose(found, wanted, atol=1e-6)
        sums = d * (1 - found**2)
        found_by_hand = [own.backward(sums), *own.gradients(sums, x)[0], own.gradients(sums, x)[1]]
    by_torch = torch.autograd.grad(wanted, [x, *weights, bias], d)
    for value, right in zip(found_by_hand, by_torch, strict=True):
        assert torch.allclose(value, right, atol=1e-5)


@pytest.mark.parametrize("case", TREE_CASES)
def test_levels_find_what_autograd_finds_tree_by_tree(case: str) -> None:
    wanted = found_by(Eager, case)
    for name, value in found_by(Levels, case).items():
        assert relative_error(value, wanted[name]) < 1e-5, name


@pytest.mark.parametrize("case", TREE_CASES)
def test_inference_finds_the_same(case: str) -> None:
    wanted = found_by(Levels, case)
    found = found_by(Levels, case, "infer")
    assert set(found) == {"loss", "outputs"}
    for name, value in found.items():
        assert relative_error(value, wanted[name]) < 1e-6, name


def test_memory_that_is_kept_holds_nothing_of_the_mini_batch_before() -> None:
    """A large mini-batch, then a small one: as if the small one came first."""
    system = Levels(settings())
    system.prepare(CASES["mv_rnn"].model, initial_weights(CASES["mv_rnn"].model, seed=0))
    small, large = trees_of((3, 1)), trees_of((9, 4, 13))
    wanted = found_in(system, small)
    found_in(system, large)
    for name, value in found_in(system, small).items():
        assert np.array_equal(value, wanted[name]), name


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_new_trees_compile_nothing_again(mode: str) -> None:
    system = Compiled(settings(mode))
    system.prepare(CASES["tree_lstm"].model, initial_weights(CASES["tree_lstm"].model, seed=0))
    n_before = system.n_compilations()
    assert n_before > 0
    for leaves in LEAVES:
        found_in(system, trees_of(leaves))
    assert system.n_compilations() == n_before
