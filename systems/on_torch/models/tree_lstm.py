"""Binary Tree-LSTM in PyTorch, as written first (Recursive) and as batched by hand (Levels)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from harness.contracts.model import Model
from systems.on_torch.parts.classified_trees import RecursiveTrees, State, TreesByLevel
from systems.on_torch.parts.tree_lstm_steps import Cell, TreeLSTMSteps
from systems.on_torch.parts.tree_parameters import TreeLSTMParameters


class Recursive(RecursiveTrees, TreeLSTMParameters):
    """One tree at a time; a state is h and c."""

    def leaf(self, *vectors: Tensor) -> State:
        """State of a leaf."""
        (x,) = vectors
        i, o, u = self.leaf_gates(x).chunk(3, dim=1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c

    def internal(self, left: State, right: State) -> State:
        """State of an internal vertex."""
        (h_1, c_1), (h_2, c_2) = left, right
        i, o, u = self.gates(torch.cat([h_1, h_2], dim=1)).chunk(3, dim=1)
        f_1 = torch.sigmoid(self.forget_1(h_1))
        f_2 = torch.sigmoid(self.forget_2(h_2) + self.forget_1.bias)
        c = torch.sigmoid(i) * torch.tanh(u) + f_1 * c_1 + f_2 * c_2
        return torch.sigmoid(o) * torch.tanh(c), c


class Levels(TreesByLevel, TreeLSTMParameters):
    """All vertices of a level at once, the derivative by hand; the classifier once, over all.

    Measured on one core of a busy machine, SST, batch 64, hidden 64 and 256, times as fast as
    autograd over levels with nn.Linear (4300 and 750 trees/s in training), medians in turns:
    training 1.27 and 1.61, inference 1.07 and 1.36. Sketches in other minutes: autograd with
    products by the faster library 0.90 to 0.94 and 1.31 to 1.41, inference 0.88 and 1.29 to 1.41;
    h and c in one tensor and two products a level 1.32 to 1.36 and 1.68 to 1.76, inference 0.97 to
    1.08 and 0.73 to 1.17; a sketch of this one 1.40 and 1.76, 1.09 and 1.44. Each child's share of
    all gates computed at its own level, times as fast as this: training 1.03 and 0.97, inference
    0.97 and 0.97.
    """

    def __init__(self, model: Model, cell: type[Cell] = Cell) -> None:
        super().__init__(model)
        self.cell = cell

    def states(self, plan: Any) -> Tensor:
        """h of all rows."""
        h: Tensor = TreeLSTMSteps.apply(  # type: ignore[no-untyped-call]
            self.embedding(plan.words),
            self.leaf_gates.weight,
            self.leaf_gates.bias,
            self.gates.weight,
            self.gates.bias,
            self.forget_1.weight,
            self.forget_2.weight,
            self.forget_1.bias,
            plan,
            self.cell,
        )
        return h


EAGER = {"tree_lstm": Recursive}
LEVELS = {"tree_lstm": Levels}
