"""TorchFold (package torchfold): dynamic batching by depth on top of PyTorch, with autograd."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchfold import torchfold as package

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.contracts.system import Clock, Counters
from dynbatch.harness.values.instances import Tree
from dynbatch.systems.on_torch.eager import TorchSystem
from dynbatch.systems.on_torch.models.child_sum import TreeLSTMChildSum
from dynbatch.systems.on_torch.models.trees import (
    CellNet,
    State,
    TreeFC,
    TreeLSTM,
    compute_l2_loss,
)
from dynbatch.systems.on_torch.net import Net, score_labels
from dynbatch.systems.on_torch.products import FastLinear

# torchfold 0.1.0 (2018) checks arguments against torch.tensor._TensorBase, which PyTorch no longer
# has, so that adding a node fails. This replaces only the package's own name `torch`, by the parts
# of PyTorch that it uses; PyTorch itself is unchanged.
package.torch = SimpleNamespace(
    tensor=SimpleNamespace(_TensorBase=Tensor),
    cat=torch.cat,
    chunk=torch.chunk,
    LongTensor=torch.LongTensor,
    cuda=torch.cuda,
)


class ListedTree(NamedTuple):
    """Tree in Python numbers, children before parents; the children of a leaf are (-1, -1)."""

    words: list[int]
    children: list[tuple[int, int]]


class ListedTrees(NamedTuple):
    """Trees, and the labels (n,) of all their vertices."""

    trees: list[ListedTree]
    labels: Tensor


def convert_trees(trees: Sequence[Tree], device: torch.device) -> ListedTrees:
    """Convert the structure to Python numbers, and the labels to a tensor."""
    labels = np.concatenate([tree.labels for tree in trees], dtype=np.int64)
    listed = [
        ListedTree(
            tree.words.tolist(), list(zip(tree.left.tolist(), tree.right.tolist(), strict=True))
        )
        for tree in trees
    ]
    return ListedTrees(listed, torch.from_numpy(labels).to(device))


class FoldedTrees(NamedTuple):
    """Fold with a node for every vertex.

    Attributes:
        nodes: nodes of each tree, in vertex order.
    """

    fold: Any
    nodes: list[list[Any]]

    def compute_states(self, net: torch.nn.Module) -> Tensor:
        """Compute the states of all vertices (n, d), tree by tree, by a network's two methods."""
        return self._compute_nodes(net, [node for tree in self.nodes for node in tree])

    def compute_root_states(self, net: torch.nn.Module) -> Tensor:
        """Compute the states of the roots (k, d), by a network's two methods."""
        return self._compute_nodes(net, [tree[-1] for tree in self.nodes])

    def _compute_nodes(self, net: torch.nn.Module, wanted: list[Any]) -> Tensor:
        (states,) = self.fold.apply(net, [wanted])
        result: Tensor = states
        return result

    @property
    def n_batches(self) -> int:
        """Number of method calls: one per kind of node and level."""
        return sum(map(len, self.fold.steps.values()))

    @property
    def n_computed(self) -> int:
        """Number of computed nodes, counting equal nodes once."""
        kinds = (nodes for level in self.fold.steps.values() for nodes in level.values())
        return sum(map(len, kinds))


def fold_trees(trees: Sequence[ListedTree], *, share: bool, cuda: bool) -> FoldedTrees:
    """Add a node for every vertex: leaf(word), internal(left, right).

    Args:
        share: leaves with equal words are one node, and so are equal subtrees, as in torchfold by
            default; otherwise each leaf also has a number, which makes it and all nodes above it
            distinct.
        cuda: whether to run on CUDA.
    """
    fold = package.Fold(cuda=cuda)
    add = fold.add  # one attribute lookup, because it is called for every vertex
    nodes: list[list[Any]] = []
    n_leaves = 0
    for words, children in trees:
        own: list[Any] = []
        for word, (left, right) in zip(words, children, strict=True):
            if left >= 0:
                own.append(add("internal", own[left], own[right]))
            elif share:
                own.append(add("leaf", word))
            else:
                own.append(add("leaf", word, n_leaves))
                n_leaves += 1
        nodes.append(own)
    return FoldedTrees(fold, nodes)


class Folded(Net):
    """Network as a module that torchfold applies: one method per kind of node.

    The state of a node is one tensor with its parts next to each other, because torchfold splits
    results into one tensor per node, and joins those of the next call's arguments.
    """

    def __init__(self, net: type[CellNet], model: Model) -> None:
        super().__init__(model)
        self.net = net(model, FastLinear)
        self.held = self.net.held

    def forward(self, trees: FoldedTrees, labels: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.cut(trees.compute_states(self))[0]
        return score_labels(self.net.classifier(hidden), labels)

    def leaf(self, words: Tensor, *_: Tensor) -> Tensor:
        return self.join(self.net.leaf(*self.net.look_up_vectors(words)))

    def internal(self, left: Tensor, right: Tensor) -> Tensor:
        return self.join(self.net.internal(self.cut(left), self.cut(right)))

    def join(self, state: State) -> Tensor:
        return torch.cat(state, dim=1) if self.net.n_states > 1 else state[0]

    def cut(self, states: Tensor) -> State:
        n = self.net.n_states
        return tuple(states.chunk(n, dim=1)) if n > 1 else (states,)


class FoldedRoots(Folded):
    """Network of which only the roots' states are read."""

    def forward(self, trees: FoldedTrees, _: Tensor) -> tuple[Tensor, Tensor]:
        roots = trees.compute_root_states(self)
        return compute_l2_loss(roots), roots


FOLDED = {
    "tree_lstm": partial(Folded, TreeLSTM),
    "tree_lstm_child_sum": partial(Folded, TreeLSTMChildSum),
    "tree_fc": partial(FoldedRoots, TreeFC),
}


@dataclass(frozen=True, slots=True)
class TorchFoldOptions:
    """Options of TorchFold.

    Attributes:
        share_equal_nodes: see fold_trees.
    """

    share_equal_nodes: bool = True


class Adapter(TorchSystem):
    """System that adds a node per vertex to a Fold (construct), and runs it level by level."""

    option_type = TorchFoldOptions
    options: TorchFoldOptions
    networks = "dynbatch.systems.on_torch.torchfold:FOLDED"
    phases = ("construct", "forward", "backward", "update")
    _folded: FoldedTrees | None = None  # the last run's

    def load(self, instances: Sequence[Tree]) -> None:
        """Take the next mini-batch, as Python numbers."""
        self._listed = convert_trees(instances, self._device)

    def _forward(self, clock: Clock) -> tuple[Tensor, Tensor]:
        share, cuda = self.options.share_equal_nodes, self._device.type == "cuda"
        self._folded = fold_trees(self._listed.trees, share=share, cuda=cuda)
        clock.mark("construct")
        loss_and_outputs: tuple[Tensor, Tensor] = self._net(self._folded, self._listed.labels)
        clock.mark("forward")
        return loss_and_outputs

    def counters(self) -> Counters:
        return Counters(n_batches=self._folded.n_batches if self._folded else None)

    def effective_options(self) -> dict[str, str]:
        """Return the options, with the number of computed nodes of the last mini-batch.

        Nodes that are equal to others are not computed.
        """
        facts = super().effective_options()
        if self._folded is not None:
            n_computed, n_added = self._folded.n_computed, self._folded.fold.total_nodes
            facts["nodes_computed"] = f"{n_computed} of {n_added}"
        return facts

    def versions(self) -> dict[str, str]:
        return super().versions() | {"torchfold": version("torchfold")}
