"""Levels of trees whose states are in one tensor: those that later levels still need."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dynbatch.systems.on_torch.rows import to_device
from dynbatch.systems.plans.trees import Ids, JoinedTrees


@dataclass(frozen=True, slots=True)
class KeptLevel:
    """Rows of the stored states: children of a level's vertices (pairs), then those still needed.

    Between levels, one tensor has all states that later levels need.

    Attributes:
        rows: the rows; None if they are all rows in order, so that nothing has to be moved.
        n_children: number of children.
        n_kept: number of states that are still needed.
    """

    rows: Tensor | None
    n_children: int
    n_kept: int

    def take(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Split the stored states into children, two rows per vertex, and those still needed."""
        chosen = states if self.rows is None else states.index_select(0, self.rows)
        if self.n_kept == 0:
            return chosen, chosen[:0]
        children, kept = torch.split(chosen, [self.n_children, self.n_kept])
        return children, kept

    def add(self, kept: Tensor, new: Tensor) -> Tensor:
        """Return the states from which the next level takes its rows."""
        return torch.cat((kept, new)) if self.n_kept else new


@dataclass(frozen=True, slots=True)
class TreeLevels:
    """Mini-batch of trees, level by level; a level has all vertices of equal height.

    Attributes:
        words: (n_leaves,) words of the leaves, which are the first level.
        roots: (n_instances,) rows of the roots in the last stored states.
        levels: the other levels.
    """

    words: Tensor
    roots: Tensor
    levels: tuple[KeptLevel, ...]


def plan_levels(joined: JoinedTrees, device: torch.device) -> TreeLevels:
    """Plan the levels of a mini-batch; one copy brings all indices to the device."""
    height = joined.height
    ends, internal = np.cumsum(joined.sizes), np.flatnonzero(height)
    left, right = joined.left[internal], joined.right[internal]
    last_use = np.zeros(len(height), np.int64)  # the level of the parent
    last_use[left] = last_use[right] = height[internal]
    last_use[ends - 1] = len(height)  # roots are needed until the end
    order = np.argsort(height, kind="stable")
    rows, shapes, position = _arrange_level_rows(order, height, last_use, internal, left, right)
    n_leaves = len(height) - len(internal)
    words = joined.words[order[:n_leaves]]
    tensors = to_device(device, words, position[ends - 1], *rows)
    levels = (
        KeptLevel(tensor if moved else None, n_children, n_kept)
        for tensor, (moved, n_children, n_kept) in zip(tensors[2:], shapes, strict=True)
    )
    return TreeLevels(tensors[0], tensors[1], tuple(levels))


def _arrange_level_rows(
    order: Ids, height: Ids, last_use: Ids, internal: Ids, left: Ids, right: Ids
) -> tuple[list[Ids], list[tuple[bool, int, int]], Ids]:
    """Return the rows of each level, their shapes, and the position of every vertex.

    The shape of a level shows whether its rows differ from all rows in order, and the numbers of
    children and of states that are still needed.
    """
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
