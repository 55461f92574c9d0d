"""Tree-FC, both variants, as a module that torchfold applies."""

from __future__ import annotations

import torch
from torch import Tensor

from systems.on_torch.parts.folds import FoldedTrees
from systems.on_torch.parts.products import linear_relu
from systems.on_torch.parts.tree_parameters import TreeFCParameters


class Folded(TreeFCParameters):
    """Equations of harness.models.tree_fc; without a table, leaves read zeros."""

    def forward(self, trees: FoldedTrees, _: Tensor) -> tuple[Tensor, Tensor]:
        """Summed loss (Fold's l2_loss), states of all roots."""
        roots = trees.root_states(self)
        return 0.5 * roots.square().sum(), roots

    def leaf(self, words: Tensor, *_: Tensor) -> Tensor:
        """States of leaves from their words (n,)."""
        if self.embedding is None:
            return self.cell(self.layer.weight.new_zeros(len(words), self.layer.in_features))
        found: Tensor = self.embedding(words)
        return found

    def internal(self, left: Tensor, right: Tensor) -> Tensor:
        """States of internal vertices from those of their children."""
        return self.cell(torch.cat([left, right], dim=1))

    def cell(self, both: Tensor) -> Tensor:
        """The layer, (n, 2 h) to (n, h)."""
        return linear_relu(both, self.layer.weight, self.layer.bias)


FOLDED = {"tree_fc": Folded}
