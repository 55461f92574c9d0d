"""Binary trees in PyTorch: one tree at a time, and manually batched.

Networks have the equations of their model's cell for any number of vertices, except Tree-GRU's.
EAGER calls it for one vertex, torchfold (systems/on_torch/torchfold.py) for the vertices that it
batches, and LEVELS has the same cell with a derivative written by hand.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.models.tree_lstm_2type import TreeLSTM2Type
from dynbatch.harness.values.instances import Tree
from dynbatch.systems.on_torch.models.kept_levels import TreeLevels, plan_levels
from dynbatch.systems.on_torch.models.tree_steps import (
    TreeCell,
    TreeGRUCell,
    TreeLSTMCell,
    TreeSteps,
)
from dynbatch.systems.on_torch.net import Batched, BatchedVertices, Net, OneByOne, score_labels
from dynbatch.systems.on_torch.products import FastLinear, apply_linear_relu
from dynbatch.systems.on_torch.rows import move_to_device
from dynbatch.systems.plans.trees import join_trees, plan_tree_rows

OfLeaf = TypeVar("OfLeaf")
State = tuple[Tensor, ...]  # parts of vertices' states; the classifier reads the first (n, h)


class TreeNet(Net):
    """Parameters of a tree model."""

    embedding: nn.Embedding | None
    classifier: nn.Linear

    def look_up_vectors(self, words: Tensor) -> State:
        """Look up the vectors of the words (n,) of leaves."""
        assert self.embedding is not None
        return (self.embedding(words),)

    def list_weights(self) -> tuple[Tensor, ...]:
        """Return the weights that the model's cell with a manual derivative takes."""
        raise NotImplementedError


class CellNet(TreeNet):
    """Parameters of a tree model, and the equations of its cell for n vertices.

    Attributes:
        n_states: number of parts of a state.
    """

    n_states: ClassVar[int] = 1

    def __init__(self, model: Model, kind: type[nn.Linear] = nn.Linear) -> None:
        super().__init__(model)

    @abstractmethod
    def leaf(self, *vectors: Tensor) -> State:
        """Return the state of leaves, given the vectors of their words."""

    @abstractmethod
    def internal(self, left: State, right: State) -> State:
        """Return the state of internal vertices."""


class TreeLSTM(CellNet):
    """Parameters and equations of dynbatch.harness.models.tree_lstm; a state is h and c."""

    n_states = 2

    def __init__(self, model: Model, kind: type[nn.Linear] = nn.Linear) -> None:
        super().__init__(model)
        self.embedding, self.classifier = self.make_table("embedding"), self.make_linear("W_out")
        self.leaf_gates = self.make_linear("W", "b_leaf", kind)
        self.gates = self.make_linear("U", "b", kind)
        self.forget_1 = self.make_linear("F_1", "b_f", kind)
        self.forget_2 = self.make_linear("F_2", kind=kind)
        self.forget_2.bias = self.forget_1.bias  # both children share it

    def leaf(self, *vectors: Tensor) -> State:
        (x,) = vectors
        i, o, u = self.leaf_gates(x).chunk(3, dim=1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c

    def internal(self, left: State, right: State) -> State:
        (h_1, c_1), (h_2, c_2) = left, right
        i, o, u = self.gates(torch.cat([h_1, h_2], dim=1)).chunk(3, dim=1)
        f_1, f_2 = torch.sigmoid(self.forget_1(h_1)), torch.sigmoid(self.forget_2(h_2))
        c = torch.sigmoid(i) * torch.tanh(u) + f_1 * c_1 + f_2 * c_2
        return torch.sigmoid(o) * torch.tanh(c), c

    def list_weights(self) -> tuple[Tensor, ...]:
        layers = self.leaf_gates, self.gates, self.forget_1
        leaf, gates, forget = ((layer.weight, layer.bias) for layer in layers)
        return *leaf, *gates, *forget, self.forget_2.weight


class TreeGRU(TreeNet):
    """Parameters of dynbatch.harness.models.tree_gru, whose equations are TreeGRUCell's."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.embedding, self.classifier = self.make_table("embedding"), self.make_linear("W_out")
        self.leaf_gates = self.make_linear("W", "b_leaf")
        self.leaf_candidate = self.make_linear("W_c", "b_leaf_c")
        # Both children share the biases of the first.
        self.gates_1, self.gates_2 = self.make_linear("U_1", "b"), self.make_linear("U_2")
        self.candidate_1 = self.make_linear("U_c1", "b_c")
        self.candidate_2 = self.make_linear("U_c2")

    def list_weights(self) -> tuple[Tensor, ...]:
        leaf = self.leaf_gates, self.leaf_candidate
        first, second = (self.gates_1, self.candidate_1), (self.gates_2, self.candidate_2)
        return (
            *(own for layer in leaf for own in (layer.weight, layer.bias)),
            *(own for pair in zip(first, second, strict=True) for own in _join_weights(*pair)),
        )


def _join_weights(first: nn.Linear, second: nn.Linear) -> tuple[Tensor, ...]:
    return first.weight, second.weight, first.bias


class WordTree(NamedTuple):
    """Tree in Python numbers, with a tensor of labels, which the loss reads at once."""

    labels: Tensor
    children: list[tuple[int, int]]  # (-1, -1): a leaf

    def assign_to_leaves(self, states: Iterator[OfLeaf]) -> dict[int, OfLeaf]:
        """Assign the next of the states to every leaf, in vertex order."""
        return {v: next(states) for v, (left, _) in enumerate(self.children) if left < 0}


class WordTrees(NamedTuple):
    """Trees, and the words of all their leaves, in vertex order.

    One embedding lookup serves the mini-batch. With one lookup per tree or per word, each sparse
    gradient would be added to the others by copying all of them.
    """

    words: Tensor
    trees: list[WordTree]


class Recursive(OneByOne):
    """One tree at a time, by a recursive function, as a first version is written."""

    def __init__(self, net: type[CellNet], model: Model) -> None:
        super().__init__(model)
        self.net = net(model)
        self.held = self.net.held

    def prepare(self, trees: Sequence[Tree]) -> WordTrees:
        """Convert words and labels to tensors, and the structure to Python numbers."""
        device = next(self.parameters()).device
        words = np.concatenate([tree.words[tree.words >= 0] for tree in trees], dtype=np.int64)
        return WordTrees(
            torch.from_numpy(words).to(device),
            [
                WordTree(
                    torch.from_numpy(tree.labels.astype(np.int64)).to(device),
                    list(zip(tree.left.tolist(), tree.right.tolist(), strict=True)),
                )
                for tree in trees
            ],
        )

    def yield_scores(self, batch: WordTrees) -> Iterator[tuple[Tensor, Tensor]]:
        for tree, hidden in self.yield_hidden(batch):
            logits = self.net.classifier(torch.cat([hidden[v] for v in range(len(hidden))]))
            yield logits, tree.labels

    def yield_hidden(self, batch: WordTrees) -> Iterator[tuple[WordTree, dict[int, Tensor]]]:
        """Yield every tree, and the classifier's input of all its vertices."""
        vectors = zip(*self.split(self.net.look_up_vectors(batch.words)), strict=True)
        for tree in batch.trees:
            hidden: dict[int, Tensor] = {}
            visit(self.net, tree, tree.assign_to_leaves(vectors), hidden, len(tree.children) - 1)
            yield tree, hidden

    def split(self, vectors: State) -> Iterator[Sequence[Tensor]]:
        """Split looked-up vectors into rows (1, n_inputs)."""
        return (torch.split(part, 1) for part in vectors)


def visit(
    net: CellNet, tree: WordTree, vectors: dict[int, State], hidden: dict[int, Tensor], v: int
) -> State:
    """Return the state of the subtree below a vertex; store the classifier's inputs in `hidden`."""
    # Not a nested function, which would refer to itself and so keep a tree's tensors alive until
    # the garbage collector runs, which is paused while passes are timed.
    left, right = tree.children[v]
    if left < 0:
        state = net.leaf(*vectors[v])
    else:
        first = visit(net, tree, vectors, hidden, left)
        state = net.internal(first, visit(net, tree, vectors, hidden, right))
    hidden[v] = state[0]
    return state


class Levels(BatchedVertices):
    """All vertices of a level at once, with a derivative written by hand.

    The classifier runs once, over all vertices. Vertices of two types are never batched together,
    although their weights are equal. Faster than autograd over levels.
    """

    def __init__(self, net: type[TreeNet], model: Model, *, cell: type[TreeCell]) -> None:
        super().__init__(model)
        self.net = net(model)
        self.held, self.cell = self.net.held, cell
        self.kinds = model.assign_kinds if isinstance(model, TreeLSTM2Type) else None

    def plan(self, trees: Sequence[Tree], device: torch.device) -> Any:
        """Plan the rows of all vertices, one batch per height and type."""
        return move_to_device(plan_tree_rows(trees, self.kinds), device)

    def forward(self, plan: Any) -> tuple[Tensor, Tensor]:
        (x,) = self.net.look_up_vectors(plan.words)
        h = TreeSteps.apply(self.cell, plan, x, *self.net.list_weights())  # type: ignore[no-untyped-call]
        return score_labels(self.net.classifier(h), plan.labels)


class TreeFC(CellNet):
    """Parameters and equations of harness/models/tree_fc.py; the variant "cavs" has no table."""

    def __init__(self, model: Model, kind: type[nn.Linear] = nn.Linear) -> None:
        super().__init__(model)
        self.layer = self.make_linear("W", "b", kind)
        self.embedding = self.make_table("embedding") if "embedding" in self.shapes else None

    def look_up_vectors(self, words: Tensor) -> State:
        """Look up embeddings; without a table, return zeros of the width of two children."""
        if self.embedding is None:
            return (self.layer.weight.new_zeros(len(words), self.layer.in_features),)
        return (self.embedding(words),)

    def leaf(self, *vectors: Tensor) -> State:
        return vectors if self.embedding is not None else (self.apply_layer(vectors[0]),)

    def internal(self, left: State, right: State) -> State:
        return (self.apply_layer(torch.cat([left[0], right[0]], dim=1)),)

    def apply_layer(self, both: Tensor) -> Tensor:
        """Return states (n, h), given those of both children (n, 2 h)."""
        if isinstance(self.layer, FastLinear):
            return apply_linear_relu(both, self.layer.weight, self.layer.bias)
        state: Tensor = self.layer(both)
        return state.relu()


def compute_l2_loss(roots: Tensor) -> Tensor:
    """Return Fold's l2_loss, summed."""
    return 0.5 * roots.square().sum()


class RecursiveRoots(Recursive):
    """One tree at a time; only the states of roots are read."""

    def forward(self, batch: WordTrees) -> tuple[Tensor, Tensor]:
        roots = torch.cat([hidden[len(hidden) - 1] for _, hidden in self.yield_hidden(batch)])
        return compute_l2_loss(roots), roots


class LevelsOfRoots(Batched):
    """All vertices of a level in one layer; only the layer's derivative is written by hand."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.net = TreeFC(model, FastLinear)
        self.held = self.net.held

    def plan(self, trees: Sequence[Tree], device: torch.device) -> TreeLevels:
        """Plan the levels; only the states of roots are read."""
        joined = join_trees(trees)
        return plan_levels(joined, device)

    def forward(self, plan: TreeLevels) -> tuple[Tensor, Tensor]:
        net = self.net
        (states,) = net.leaf(*net.look_up_vectors(plan.words))
        for level in plan.levels:
            children, kept = level.take(states)
            states = level.add(kept, net.apply_layer(children.view(-1, net.layer.in_features)))
        roots = states.index_select(0, plan.roots)
        return compute_l2_loss(roots), roots


EAGER = {
    "tree_lstm": partial(Recursive, TreeLSTM),
    "tree_fc": partial(RecursiveRoots, TreeFC),
}
LEVELS = {
    "tree_lstm": partial(Levels, TreeLSTM, cell=TreeLSTMCell),
    "tree_lstm_2type": partial(Levels, TreeLSTM, cell=TreeLSTMCell),
    "tree_gru": partial(Levels, TreeGRU, cell=TreeGRUCell),
    "tree_fc": LevelsOfRoots,
}
