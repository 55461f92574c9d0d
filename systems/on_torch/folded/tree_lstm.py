"""Binary Tree-LSTM as a module that torchfold applies."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from systems.on_torch.parts.folds import FoldedTrees
from systems.on_torch.parts.products import linear
from systems.on_torch.parts.tree_parameters import TreeLSTMParameters


class Folded(TreeLSTMParameters):
    """Equations of harness.models.tree_lstm; a state is h beside c (n, 2 h).

    torchfold cuts what a call returns into one tensor for each node, and joins those of the next
    call's arguments: measured on one core of a busy machine by processor time, SST, batch 64,
    hidden 64 and 256, training, in trees/s: this one 2411 and 1030; h and c apart (`split`) 1852
    and 891; the classifier as a kind of node 2113 and 951; a kind of node that hands h out, so that
    all of a level are read at once, 2392 and 1048; nn.Linear in place of `linear` 2553 and 789.
    """

    def forward(self, trees: FoldedTrees, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Summed loss, logits of all vertices."""
        h, _ = trees.states(self).chunk(2, dim=1)
        logits = self.classifier(h)
        return functional.cross_entropy(logits, labels, reduction="sum"), logits

    def leaf(self, words: Tensor, *_: Tensor) -> Tensor:
        """States of leaves from their words (n,)."""
        x = self.embedding(words)
        i, o, u = linear(x, self.leaf_gates.weight, self.leaf_gates.bias).chunk(3, dim=1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.cat([torch.sigmoid(o) * torch.tanh(c), c], dim=1)

    def internal(self, left: Tensor, right: Tensor) -> Tensor:
        """States of internal vertices from those of their children."""
        (h_1, c_1), (h_2, c_2) = left.chunk(2, dim=1), right.chunk(2, dim=1)
        both = torch.cat([h_1, h_2], dim=1)
        i, o, u = linear(both, self.gates.weight, self.gates.bias).chunk(3, dim=1)
        f_1 = torch.sigmoid(linear(h_1, self.forget_1.weight, self.forget_1.bias))
        f_2 = torch.sigmoid(linear(h_2, self.forget_2.weight, self.forget_1.bias))
        c = torch.sigmoid(i) * torch.tanh(u) + f_1 * c_1 + f_2 * c_2
        return torch.cat([torch.sigmoid(o) * torch.tanh(c), c], dim=1)


FOLDED = {"tree_lstm": Folded}
