"""Binary Tree-GRU as a module that torchfold applies."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from systems.on_torch.parts.folds import FoldedTrees
from systems.on_torch.parts.products import linear
from systems.on_torch.parts.tree_parameters import TreeGRUParameters


class Folded(TreeGRUParameters):
    """Equations of harness.models.tree_gru."""

    def forward(self, trees: FoldedTrees, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all vertices."""
        logits = self.classifier(trees.states(self))
        return functional.cross_entropy(logits, labels, reduction="sum"), logits

    def leaf(self, words: Tensor, *_: Tensor) -> Tensor:
        """States of leaves from their words (n,)."""
        biases = self.leaf_gates.bias, self.leaf_candidate.bias
        return step(self.embedding(words), self.leaf_gates, self.leaf_candidate, *biases)

    def internal(self, left: Tensor, right: Tensor) -> Tensor:
        """States of internal vertices from those of their children."""
        biases = self.gates_1.bias, self.candidate_1.bias
        first = step(left, self.gates_1, self.candidate_1, *biases)
        return 0.5 * (first + step(right, self.gates_2, self.candidate_2, *biases))


def step(h: Tensor, gates: nn.Linear, candidate: nn.Linear, b: Tensor, b_c: Tensor) -> Tensor:
    """A GRU's step: z h + (1 - z) c."""
    r, z = torch.sigmoid(linear(h, gates.weight, b)).chunk(2, dim=1)
    c = torch.tanh(linear(r * h, candidate.weight, b_c))
    return torch.lerp(c, h, z)


FOLDED = {"tree_gru": Folded}
