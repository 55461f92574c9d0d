"""Trees as nodes of torchfold, and what the package misses in today's PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchfold import torchfold as package

from harness.values.instances import Tree

# torchfold 0.1.0 (2018) asks whether an argument is a torch.tensor._TensorBase, which PyTorch no
# longer has: without this, adding a node fails. Only the package's own name `torch` is replaced, by
# all that it reads of PyTorch; PyTorch itself stays as it is.
package.torch = SimpleNamespace(
    tensor=SimpleNamespace(_TensorBase=Tensor),
    cat=torch.cat,
    chunk=torch.chunk,
    LongTensor=torch.LongTensor,
    cuda=torch.cuda,
)


class ListedTree(NamedTuple):
    """A tree in Python numbers, children before parents: its words, and (-1, -1) for a leaf."""

    words: list[int]
    children: list[tuple[int, int]]


class ListedTrees(NamedTuple):
    """K trees, and the labels (n,) of all their vertices."""

    trees: list[ListedTree]
    labels: Tensor


def listed_trees(trees: Sequence[Tree], device: torch.device) -> ListedTrees:
    """Make Python numbers of the structure, and a tensor of labels."""
    labels = np.concatenate([tree.labels for tree in trees], dtype=np.int64)
    listed = [
        ListedTree(
            tree.words.tolist(), list(zip(tree.left.tolist(), tree.right.tolist(), strict=True))
        )
        for tree in trees
    ]
    return ListedTrees(listed, torch.from_numpy(labels).to(device))


class FoldedTrees(NamedTuple):
    """A Fold with a node for every vertex; `nodes` holds those of each tree in vertex order."""

    fold: Any
    nodes: list[list[Any]]

    def states(self, net: torch.nn.Module) -> Tensor:
        """Compute states of all vertices (n, d), tree by tree; net: leaf and internal."""
        return self._states(net, [node for tree in self.nodes for node in tree])

    def root_states(self, net: torch.nn.Module) -> Tensor:
        """Compute states of the roots (k, d); net: leaf and internal."""
        return self._states(net, [tree[-1] for tree in self.nodes])

    def _states(self, net: torch.nn.Module, wanted: list[Any]) -> Tensor:
        (states,) = self.fold.apply(net, [wanted])
        found: Tensor = states
        return found

    @property
    def n_batches(self) -> int:
        """Calls of a method: one for each kind of node on each level."""
        return sum(map(len, self.fold.steps.values()))

    @property
    def n_computed(self) -> int:
        """Nodes that are computed, equal ones once."""
        kinds = (nodes for level in self.fold.steps.values() for nodes in level.values())
        return sum(map(len, kinds))


def fold_trees(trees: Sequence[ListedTree], *, share: bool, cuda: bool) -> FoldedTrees:
    """Add a node for every vertex: leaf(word), internal(left, right).

    share: leaves of one word are one node, and so are equal subtrees, as torchfold does by itself;
    else every leaf also bears its number, by which its node, and all above it, are told apart.
    """
    fold = package.Fold(cuda=cuda)
    add = fold.add  # looked up once: this is called for every vertex
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
