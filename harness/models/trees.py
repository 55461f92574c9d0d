"""From binary trees to the typed graph of a mini-batch; shared by all tree models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.graph import Graph, MiniBatch
from harness.instances import IntArray, Tree

LEAF, INTERNAL = 1, 2
TYPE_NAMES = ("unbatchable", "leaf", "internal")


def tree_mini_batch(instances: Sequence[Tree], outputs: str) -> MiniBatch:
    """Join K trees into one graph of leaf and internal vertices.

    outputs: "all" vertices or the "roots" are read from outside.
    """
    sizes = np.array([tree.table.shape[1] for tree in instances], dtype=np.int32)
    words, labels, left, right = np.concatenate([tree.table for tree in instances], axis=1)
    types, arg_start, args = _join(sizes, left, right)
    read = np.arange(len(words)) if outputs == "all" else np.cumsum(sizes) - 1
    return MiniBatch(
        graph=Graph(types=types, arg_start=arg_start, args=args, type_names=TYPE_NAMES),
        pulls={"word": words, "label": labels},
        outputs=read.astype(np.int32),
        n_instances=len(instances),
    )


def _join(sizes: IntArray, left: IntArray, right: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Shift every tree's children behind the vertices of the trees before it (NumPy only, so that
    the process of another framework need not load a compiler)."""
    offsets = np.repeat(np.cumsum(sizes, dtype=np.int32) - sizes, sizes)
    internal = left >= 0
    types = np.where(internal, np.int32(INTERNAL), np.int32(LEAF))
    arg_start = np.zeros(len(left) + 1, dtype=np.int32)
    np.cumsum(2 * internal, out=arg_start[1:])
    args = np.stack([(left + offsets)[internal], (right + offsets)[internal]], axis=1).ravel()
    return types, arg_start, args
