"""Trees of given sizes, drawn once and for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.contracts.model import ModelSizes
from harness.values.instances import Tree
from tests.support.run_adapter import random_tree


def trees(sizes: ModelSizes, n_leaves: Sequence[int]) -> list[Tree]:
    """One tree of so many leaves each."""
    rng = np.random.default_rng(3)
    return [random_tree(n, sizes, rng) for n in n_leaves]
