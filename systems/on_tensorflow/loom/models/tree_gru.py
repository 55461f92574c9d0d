"""Binary Tree-GRU as a loom."""

from __future__ import annotations

from typing import Any

from systems.on_tensorflow.loom.classified_trees import ClassifiedTrees
from systems.on_tensorflow.loom.loop import Tensors
from systems.on_tensorflow.parts.tree_cells import gru_internal, gru_leaf


class Fold(ClassifiedTrees):
    """Parameters of harness.models.tree_gru."""

    def leaf(self, weights: Tensors, x: Any) -> Any:
        """The leaf's cell."""
        return gru_leaf(weights, x)

    def internal(self, weights: Tensors, left: Any, right: Any) -> Any:
        """The internal cell."""
        return gru_internal(weights, left, right)


FOLD = {"tree_gru": Fold}
