"""PyTorch Geometric (package torch_geometric): trees as graphs, with autograd.

The library collates trees, and passes the states of children to their parents, one depth at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import MessagePassing

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.machine.folders import make_process_folder
from dynbatch.harness.values.instances import Tree
from dynbatch.systems.on_torch.levels import Adapter as LevelsAdapter
from dynbatch.systems.on_torch.models.child_sum import TreeLSTMChildSum
from dynbatch.systems.on_torch.models.trees import CellNet, TreeLSTM
from dynbatch.systems.on_torch.net import BatchedVertices, score_labels
from dynbatch.systems.on_torch.products import ONEDNN, FastLinear
from dynbatch.systems.on_torch.rows import to_device
from dynbatch.systems.plans.programs import Once
from dynbatch.systems.plans.trees import Ids, invert_permutation


def build_graph(tree: Tree) -> Data:
    """Build a graph with an edge from each child to its parent, in pairs, the left child first."""
    words, labels, left, right = torch.from_numpy(tree.table.astype(np.int64))
    parents = torch.nonzero(left >= 0).squeeze(1)
    children = torch.stack((left[parents], right[parents]), 1).flatten()
    edges = torch.stack((children, parents.repeat_interleave(2)))
    return Data(x=words, y=labels, edge_index=edges)


class GraphLevels(NamedTuple):
    """Mini-batch of trees, level by level, the deepest vertices first.

    Attributes:
        words: (n_leaves,) words of the leaves.
        n_leaves: number of leaves of each depth.
        edges: (2, 2 n) of each depth with n internal vertices: row of every child among all
            vertices of the next depth, and of its parent.
        labels: (n,) labels of all rows: leaves, then internal vertices.
        order: (n,) vertex of every row.
    """

    words: Tensor
    n_leaves: list[int]
    edges: Sequence[Tensor]
    labels: Tensor
    order: Ids


def plan_depths(batch: Batch, device: torch.device) -> GraphLevels:
    """Plan a level per depth, from the roots, which are the last vertices of their trees.

    All children of a level's vertices are in the next one: its internal vertices, then its leaves.
    """
    pairs, parents = batch.edge_index.numpy().reshape(2, -1, 2)
    children = np.full((batch.num_nodes, 2), -1)
    children[parents[:, 0]] = pairs
    levels: list[tuple[Ids, Ids, Ids]] = []  # leaves, internal vertices, edges up
    depth = batch.ptr.numpy()[1:] - 1
    while len(depth):
        is_leaf = children[depth, 0] < 0
        inner = depth[~is_leaf]
        rows = invert_permutation(np.argsort(is_leaf, kind="stable"))
        levels.append((depth[is_leaf], inner, np.stack((rows, np.arange(len(depth)) // 2))))
        depth = children[inner].ravel()
    leaves, inners, edges = zip(*reversed(levels), strict=True)
    order = np.concatenate(leaves + inners)
    n_leaves = [len(level) for level in leaves]
    words, labels, joined = to_device(
        device,
        batch.x.numpy()[order[: sum(n_leaves)]],
        batch.y.numpy()[order],
        np.concatenate(edges, axis=1).ravel(),
    )
    to_parents = torch.split(joined.view(2, -1), [level.shape[1] for level in edges], 1)
    return GraphLevels(words, n_leaves, to_parents[:-1], labels, order)  # roots have no parents


class TreeConvolution(MessagePassing):  # type: ignore[misc]  # the package has no types
    """Cell of internal vertices, which receive the states h and c of two children side by side."""

    def __init__(self, net: CellNet) -> None:
        super().__init__(aggr=None)
        self.net = net

    def forward(self, states: Tensor, edges: Tensor) -> Tensor:
        """Return the states (n, 2 h) of a depth, given those of the next one."""
        sizes = len(states), edges.shape[1] // 2
        new: Tensor = self.propagate(edges, size=sizes, x=(states, None))
        return new

    def aggregate(self, inputs: Tensor) -> Tensor:
        """Return the states of both children (n, 2, 2 h); edges of a parent are adjacent."""
        return inputs.view(-1, 2, inputs.shape[1])

    def update(self, inputs: Tensor) -> Tensor:
        left, right = (child.chunk(self.net.n_states, 1) for child in inputs.unbind(1))
        return torch.cat(self.net.internal(left, right), 1)


class Graphs(BatchedVertices):
    """Network whose levels are bipartite graphs, from the vertices of a depth to their parents."""

    def __init__(self, net: type[CellNet], model: Model) -> None:
        super().__init__(model)
        self.net = net(model, FastLinear if ONEDNN else nn.Linear)
        self.held = self.net.held
        self.convolution = TreeConvolution(self.net)
        self.read = Once(build_graph)

    def prepare(self, trees: Sequence[Tree]) -> Sequence[Data]:
        """Return the graphs of trees, which a dataset of the library has; untimed."""
        return [self.read(tree) for tree in trees]

    def plan(self, graphs: Sequence[Data], device: torch.device) -> GraphLevels:
        """Collate the graphs, and plan a level per depth."""
        return plan_depths(Batch.from_data_list(graphs), device)

    def forward(self, plan: GraphLevels) -> tuple[Tensor, Tensor]:
        net = self.net
        state = net.leaf(*net.look_up_vectors(plan.words))
        hidden = [state[0]]
        states, *leaves = torch.split(torch.cat(state, 1), plan.n_leaves)
        for edges, more in zip(plan.edges, leaves, strict=True):
            new = self.convolution(states, edges)
            hidden.append(new.chunk(net.n_states, 1)[0])
            states = torch.cat((new, more))
        return score_labels(net.classifier(torch.cat(hidden)), plan.labels)


GRAPHS = {
    "tree_lstm": partial(Graphs, TreeLSTM),
    "tree_lstm_child_sum": partial(Graphs, TreeLSTMChildSum),
}


class Adapter(LevelsAdapter):
    """System that collates graphs and plans their levels (construct), and runs them in order."""

    networks = "dynbatch.systems.on_torch.geometric:GRAPHS"

    def prepare(self, model: Model, weights: Weights) -> None:
        """Build the network; the library writes its generated code to the temporary directory."""
        before = tempfile.tempdir
        tempfile.tempdir = str(make_process_folder("geometric"))
        try:
            super().prepare(model, weights)
        finally:
            tempfile.tempdir = before

    def versions(self) -> dict[str, str]:
        return super().versions() | {"torch_geometric": version("torch_geometric")}
