"""How many instances a sweep over batch sizes measures, so that they are the same at every size."""

from __future__ import annotations

import math
from collections.abc import Collection

# Mini-batches of a pass at the largest batch size, at least.
AT_LARGEST = 4


def shared_n_instances(batch_sizes: Collection[int], n_mini_batches: int) -> int:
    """Return the fewest instances that fill mini-batches of every size.

    n_mini_batches: how many the smallest size has at least; the largest has AT_LARGEST at least.
    """
    least = max(n_mini_batches * min(batch_sizes), AT_LARGEST * max(batch_sizes))
    step = math.lcm(*batch_sizes)
    return step * math.ceil(least / step)
