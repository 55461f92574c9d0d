"""The index plan of hand-written level batching for binary trees, made with NumPy.

A level is all vertices of equal height. Between levels the states that later levels still need
are kept in one tensor, from which one index_select takes both the children of the next level and
the states to keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from harness.values.instances import Tree
from systems.plans.trees import Ids, heights_of


@dataclass(frozen=True, slots=True)
class Level:
    """Rows of the kept states: children of the level's vertices (pairs), then those to keep.

    rows: None where these are all rows in their own order, so that nothing has to be moved.
    """

    rows: Tensor | None
    n_children: int
    n_kept: int

    def take(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Split the kept states into children, two rows a vertex, and those to keep."""
        chosen = states if self.rows is None else states.index_select(0, self.rows)
        if self.n_kept == 0:
            return chosen, chosen[:0]
        children, kept = torch.split(chosen, [self.n_children, self.n_kept])
        return children, kept

    def add(self, kept: Tensor, new: Tensor) -> Tensor:
        """Return the states that the next level chooses from."""
        return torch.cat((kept, new)) if self.n_kept else new


@dataclass(frozen=True, slots=True)
class TreeLevels:
    """A mini-batch of trees, level by level.

    words (n_leaves,): of the leaves, which are the first level.
    roots (n_instances,): rows of the roots in the last kept states.
    """

    words: Tensor
    roots: Tensor
    levels: tuple[Level, ...]


def plan_levels(trees: Sequence[Tree], device: torch.device) -> TreeLevels:
    """Plan the levels of a mini-batch; all indices reach the device in one copy."""
    sizes = np.array([len(tree.words) for tree in trees])
    ends = np.cumsum(sizes)
    offsets = np.repeat(ends - sizes, sizes)
    left = np.concatenate([tree.left for tree in trees])
    internal = np.flatnonzero(left >= 0)
    left = (left + offsets)[internal]
    right = (np.concatenate([tree.right for tree in trees]) + offsets)[internal]
    height = heights_of(ends[-1], internal, left, right)
    last_use = np.zeros(len(height), np.int64)  # the height of the parent
    last_use[left] = last_use[right] = height[internal]
    last_use[ends - 1] = len(height)  # roots are kept to the end
    order = np.argsort(height, kind="stable")
    rows, shapes, position = _rows(order, height, last_use, internal, left, right)
    words = np.concatenate([tree.words for tree in trees])
    n_leaves = len(height) - len(internal)
    parts = [words[order[:n_leaves]], position[ends - 1], *rows]
    on_device = torch.from_numpy(np.concatenate(parts, dtype=np.int64)).to(device)
    tensors = torch.split(on_device, [len(part) for part in parts])
    levels = (
        Level(tensor if moved else None, n_children, n_kept)
        for tensor, (moved, n_children, n_kept) in zip(tensors[2:], shapes, strict=True)
    )
    return TreeLevels(tensors[0], tensors[1], tuple(levels))


def _rows(
    order: Ids, height: Ids, last_use: Ids, internal: Ids, left: Ids, right: Ids
) -> tuple[list[Ids], list[tuple[bool, int, int]], Ids]:
    """Per level: rows to choose; whether that moves any, and how many are children and kept."""
    child_ids = np.zeros((len(order), 2), np.int64)
    child_ids[internal, 0], child_ids[internal, 1] = left, right
    bounds = np.searchsorted(height[order], np.arange(height[order[-1]] + 2))
    position = np.zeros(len(order), np.int64)
    kept_ids = order[: bounds[1]]
    position[kept_ids] = np.arange(len(kept_ids))
    rows, shapes = [], []
    for level in range(1, len(bounds) - 1):
        ids = order[bounds[level] : bounds[level + 1]]
        children = position[child_ids[ids].ravel()]
        keep = np.flatnonzero(last_use[kept_ids] > level)
        chosen = np.concatenate([children, keep])
        moved = not np.array_equal(chosen, np.arange(len(kept_ids)))
        rows.append(chosen)
        shapes.append((moved, len(children), len(keep)))
        kept_ids = np.concatenate([kept_ids[keep], ids])
        position[kept_ids] = np.arange(len(kept_ids))
    return rows, shapes, position
