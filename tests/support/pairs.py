"""Trees of two leaves each, as cells take them."""

from __future__ import annotations

from harness.values.arrays import int_array
from harness.values.instances import Tree

PAIRS = [
    Tree(
        int_array([a, b, -1]), int_array([0, 0, 0]), int_array([-1, -1, 0]), int_array([-1, -1, 1])
    )
    for a, b in ((0, 1), (4, 4), (2, 3), (1, 0), (3, 2))
]
