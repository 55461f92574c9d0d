"""No batching: one vertex a batch, in order of creation.

Source: DyNet with autobatching off (spec 2.1), and Cavs's serial policy (spec 3.2).
"""

from __future__ import annotations

import numpy as np

from harness.graph import Graph
from harness.schedule import Schedule


def schedule(graph: Graph) -> Schedule:
    """Execute vertex after vertex."""
    n = graph.n_vertices
    return Schedule(order=np.arange(n, dtype=np.int32), starts=np.arange(n + 1, dtype=np.int32))
