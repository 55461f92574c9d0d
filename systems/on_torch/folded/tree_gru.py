"""Binary Tree-GRU as a module that torchfold applies."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.contracts.model import Model
from systems.on_torch.parts.folds import FoldedTrees
from systems.on_torch.parts.products import linear


class Folded(nn.Module):
    """Parameters and equations of harness.models.tree_gru."""

    SHARED = {  # noqa: RUF012 - never changed
        "embedding": "embedding.weight",
        "W": "leaf_gates.weight",
        "b_leaf": "leaf_gates.bias",
        "W_c": "leaf_candidate.weight",
        "b_leaf_c": "leaf_candidate.bias",
        "U_1": "gates_1.weight",
        "U_2": "gates_2.weight",
        "b": "gates_1.bias",
        "U_c1": "candidate_1.weight",
        "U_c2": "candidate_2.weight",
        "b_c": "candidate_1.bias",
        "W_out": "classifier.weight",
    }

    def __init__(self, model: Model) -> None:
        super().__init__()
        sizes = model.sizes
        h = sizes.hidden_size
        self.embedding = nn.Embedding(sizes.of("words"), h, sparse=True)
        self.leaf_gates, self.leaf_candidate = nn.Linear(h, 2 * h), nn.Linear(h, h)
        # The biases of the first child serve both.
        self.gates_1, self.gates_2 = nn.Linear(h, 2 * h), nn.Linear(h, 2 * h, bias=False)
        self.candidate_1, self.candidate_2 = nn.Linear(h, h), nn.Linear(h, h, bias=False)
        self.classifier = nn.Linear(h, sizes.of("classes"), bias=False)

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
