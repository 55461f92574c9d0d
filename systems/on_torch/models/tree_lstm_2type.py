"""Tree-LSTM with two types of internal vertices in PyTorch, as written first and by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.models.tree_lstm_2type import TreeLSTM2Type
from harness.values.instances import Tree
from systems.on_torch.models import tree_lstm
from systems.on_torch.parts.rows import on_device
from systems.on_torch.parts.tree_lstm_steps import Cell
from systems.plans.trees import tree_rows


class Recursive(tree_lstm.Recursive):
    """One tree at a time, vertex by vertex: both types have the same weights."""


class Levels(tree_lstm.Levels):
    """All vertices of a level and a type at once: as the model has it, types are never batched
    together, though their weights are the same.
    """

    def __init__(self, model: TreeLSTM2Type, cell: type[Cell] = Cell) -> None:
        super().__init__(model, cell)
        self.kinds = model.kinds

    def plan(self, trees: Sequence[Tree], device: torch.device) -> Any:
        """Rows of all vertices, a batch for each height and type."""
        return on_device(tree_rows(trees, self.kinds), device)


EAGER = {"tree_lstm_2type": Recursive}
LEVELS = {"tree_lstm_2type": Levels}
