"""Binary Tree-LSTM as a loom."""

from __future__ import annotations

from typing import Any

from systems.on_tensorflow.loom.classified_trees import ClassifiedTrees
from systems.on_tensorflow.loom.loop import Tensors
from systems.on_tensorflow.parts.tree_cells import lstm_internal, lstm_leaf


class Fold(ClassifiedTrees):
    """Parameters of harness.models.tree_lstm; a state is [c; h] in one row."""

    n_parts = 2

    def leaf(self, weights: Tensors, x: Any) -> Any:
        """The leaf's cell."""
        return lstm_leaf(weights, x)

    def internal(self, weights: Tensors, left: Any, right: Any) -> Any:
        """The internal cell."""
        return lstm_internal(weights, left, right)


FOLD = {"tree_lstm": Fold}
