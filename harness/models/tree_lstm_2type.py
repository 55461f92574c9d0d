"""Tree-LSTM with two types of internal vertices, chosen by a seeded coin toss.

ED-Batch's release draws the types at every construction. Here a vertex's type follows from the seed
and its tree, so all systems and passes see the same graph. Both types have the same weights: only
the possible batches differ.

Source: Chen et al., "ED-Batch", ICML 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import ModelSizes
from dynbatch.harness.models.parts.trees import WORDS, build_tree_mini_batch, write_tree
from dynbatch.harness.models.tree_lstm import TreeLSTM
from dynbatch.harness.programs.writer import CallWriter
from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.checked import LARGEST_SEED, check_count
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Tree

TYPE_NAMES = ("unbatchable", "leaf", "internal_a", "internal_b")
# Odd constants of the mixing function splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
STEP, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class TreeLSTM2Type(TreeLSTM):
    """Tree-LSTM whose internal vertices are internal_a or internal_b, each with probability 1/2."""

    name = "tree_lstm_2type"
    vertex_types: tuple[str, ...] = ("leaf", "internal_a", "internal_b")
    internal_a = TreeLSTM.internal
    internal_b = TreeLSTM.internal

    def __init__(self, sizes: ModelSizes, type_seed: int = 0) -> None:
        check_count("model.options.type_seed", type_seed, 0, LARGEST_SEED)
        super().__init__(sizes, type_seed=type_seed)
        self.type_seed = type_seed

    def mini_batch(self, instances: Sequence[Tree]) -> MiniBatch:
        """Build leaves and two types of internal vertices; the classifier reads every vertex."""
        return build_tree_mini_batch(instances, "all", TYPE_NAMES, self.assign_kinds)

    def program(self, p: CallWriter, tree: Tree) -> list[Any]:
        """Build the same graph by recursion over one tree."""
        return write_tree(p, tree, TYPE_NAMES, self.assign_kinds)

    def assign_kinds(self, table: IntArray, sizes: IntArray) -> IntArray:
        """Return 0 or 1 for every vertex (n,), from its tree's words, its index and the seed."""
        starts = np.cumsum(sizes) - sizes
        index = (np.arange(table.shape[1]) - starts.repeat(sizes)).astype(np.uint64)
        words = (table[WORDS] + 2).astype(np.uint64)
        trees = np.add.reduceat(_mix(words + index * np.uint64(STEP)), starts)
        seeded = trees + np.uint64(self.type_seed * STEP % 2**64)
        return (_mix(seeded.repeat(sizes) + index) >> np.uint64(63)).astype(np.int32)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(MIX_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(MIX_2)
    return x ^ (x >> np.uint64(31))
