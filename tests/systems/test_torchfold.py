"""torchfold: the attribute that it needs from PyTorch, and deduplication of equal vertices."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
import torch
from torch import Tensor

from dynbatch.harness.values.instances import Tree
from dynbatch.systems.on_torch.torchfold import Adapter, convert_trees, fold_trees, package
from tests.support.engine_models import tree
from tests.support.processes import run_python
from tests.support.run_adapter import CASES, assert_alike, found_by, small_settings, started

CPU = torch.device("cpu")


def leaf(word: int) -> Tree:
    return tree([word], [-1], [-1])


def pair(first: int, second: int) -> Tree:
    return tree([first, second, -1], [-1, -1, 0], [-1, -1, 1])


def as_installed() -> ModuleType:
    """Import the package again, without the attribute that systems/on_torch/torchfold.py adds."""
    spec = importlib.util.find_spec("torchfold.torchfold")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_unpatched_fold_fails_on_missing_tensor_base() -> None:
    with pytest.raises(AttributeError, match="_TensorBase"):
        as_installed().Fold().add("leaf", 3)


def test_pytorch_itself_stays_as_it_is() -> None:
    """Tensors are allowed as arguments of nodes, although torch.tensor has no new attribute."""
    fold = package.Fold()
    fold.add("leaf", torch.ones(1, 2))
    with pytest.raises(ValueError, match="All args should be"):
        fold.add("leaf", "a text")
    assert not hasattr(torch.tensor, "_TensorBase")
    assert importlib.import_module("torchfold").Fold is package.Fold


def test_importing_the_adapter_patches_nothing_of_pytorch() -> None:
    program = (
        "import torch, torch._dynamo\n"  # PyTorch's own, which any optimizer imports
        "before = {k: id(v) for k, v in vars(torch).items() if k[0] != '_'}\n"
        "import dynbatch.systems.on_torch.torchfold\n"
        "changed = [k for k, v in before.items() if id(vars(torch).get(k)) != v]\n"
        "assert not changed and not hasattr(torch.tensor, '_TensorBase'), changed"
    )
    run_python("-c", program)


class Sums(torch.nn.Module):
    """Module whose states are sums of words; records the number of nodes of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def leaf(self, words: Tensor, *_: Tensor) -> Tensor:
        self.calls.append(("leaf", len(words)))
        return words[:, None].float()

    def internal(self, left: Tensor, right: Tensor) -> Tensor:
        self.calls.append(("internal", len(left)))
        return left + right


TREES = [leaf(5), pair(5, 7), pair(5, 7), pair(7, 5)]


@pytest.mark.parametrize(
    ("share", "calls"),
    [
        (True, [("leaf", 2), ("internal", 2)]),  # pair(5, 7) and pair(7, 5)
        (False, [("leaf", 7), ("internal", 3)]),
    ],
)
def test_equal_nodes_are_computed_once_where_they_are_shared(
    share: bool, calls: list[tuple[str, int]]
) -> None:
    folded = fold_trees(convert_trees(TREES, CPU).trees, share=share, cuda=False)
    net = Sums()
    assert folded.compute_states(net).flatten().tolist() == [5, 5, 7, 12, 5, 7, 12, 7, 5, 12]
    assert net.calls == calls
    assert folded.n_batches == len(calls)
    assert folded.n_computed == sum(n for _, n in calls)
    assert folded.compute_root_states(Sums()).flatten().tolist() == [5, 12, 12, 12]


@pytest.mark.parametrize(
    "case", ["tree_lstm", "tree_lstm_child_sum", "tree_fc_fold", "tree_fc_cavs", "tree_gru"]
)
def test_sharing_preserves_results_and_is_reported(case: str) -> None:
    model, trees = CASES[case].model, [*CASES[case].instances, leaf(3), pair(3, 3), pair(3, 3)]
    shared, apart = started(Adapter, model), started(Adapter, model, share_equal_nodes=False)
    assert_alike(found_by(apart, trees), found_by(shared, trees))
    n = sum(len(tree.words) for tree in trees)
    assert apart.effective_options() == {
        "share_equal_nodes": "false",
        "nodes_computed": f"{n} of {n}",
    }
    n_computed, _, n_added = shared.effective_options()["nodes_computed"].split()
    assert int(n_computed) < int(n_added) == n


def test_no_facts_before_a_run() -> None:
    system = Adapter(small_settings())
    assert system.effective_options() == {"share_equal_nodes": "true"}
    assert system.counters().n_batches is None


def test_unsupported_trial_has_a_reason() -> None:
    reason = "FOLDED has no model var_lstm; choose one of tree_fc, tree_gru, tree_lstm"
    assert reason in str(Adapter.skip(CASES["var_lstm"].model, small_settings()))
