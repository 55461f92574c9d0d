"""PyTorch with manual level batching and PyTorch's own derivatives.

The forward has the equations of the eager networks, and the plans of the manually batched system.
What manual derivatives are worth is the difference to dynbatch.systems.on_torch.levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.instances import Tree
from dynbatch.systems.on_torch.levels import Adapter as LevelsAdapter
from dynbatch.systems.on_torch.models.child_sum import TreeLSTMChildSum
from dynbatch.systems.on_torch.models.kept_levels import KeptLevel, plan_levels
from dynbatch.systems.on_torch.models.trees import CellNet, TreeLSTM
from dynbatch.systems.on_torch.net import BatchedVertices, score_labels
from dynbatch.systems.on_torch.products import ONEDNN, FastLinear
from dynbatch.systems.on_torch.rows import to_tensor
from dynbatch.systems.plans.trees import Ids, join_trees


class Adapter(LevelsAdapter):
    """Manually batched system whose derivatives are autograd's."""

    networks = "dynbatch.systems.on_torch.autograd:AUTOGRAD"


class AllLevels(NamedTuple):
    """Levels of a mini-batch whose vertices are all classified.

    Attributes:
        words: (n_leaves,) words of the leaves, which are the first level.
        levels: the other levels.
        labels: (n,) labels, level by level.
        order: (n,) vertex of every row.
    """

    words: Tensor
    levels: Sequence[KeptLevel]
    labels: Tensor
    order: Ids


class LevelsByAutograd(BatchedVertices):
    """All vertices of equal height in one call of the eager network's cell."""

    def __init__(self, net: type[CellNet], model: Model) -> None:
        super().__init__(model)
        self.net = net(model, FastLinear if ONEDNN else nn.Linear)
        self.held = self.net.held

    def plan(self, trees: Sequence[Tree], device: torch.device) -> AllLevels:
        """Plan the levels, one per height."""
        joined = join_trees(trees)
        order = np.argsort(joined.height, kind="stable")
        plan = plan_levels(joined, device)
        return AllLevels(plan.words, plan.levels, to_tensor(joined.labels[order], device), order)

    def forward(self, plan: AllLevels) -> tuple[Tensor, Tensor]:
        net = self.net
        state = net.leaf(*net.look_up_vectors(plan.words))
        hidden, states = [state[0]], torch.cat(state, 1)
        for level in plan.levels:
            children, kept = level.take(states)
            left, right = children.view(-1, 2, states.shape[1]).unbind(1)
            state = net.internal(left.chunk(net.n_states, 1), right.chunk(net.n_states, 1))
            hidden.append(state[0])
            states = level.add(kept, torch.cat(state, 1))
        return score_labels(net.classifier(torch.cat(hidden)), plan.labels)


AUTOGRAD = {
    "tree_lstm": partial(LevelsByAutograd, TreeLSTM),
    "tree_lstm_child_sum": partial(LevelsByAutograd, TreeLSTMChildSum),
}
