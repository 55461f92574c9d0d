"""No batching: one vertex a batch, in order of creation.

Source: DyNet with autobatching off (SimpleExecutionEngine in dynet/exec.cc), and Cavs's serial
policy (SerialGraphScheduler in its release's cavs/midend/graph_scheduler.cc).
"""

from __future__ import annotations

import numpy as np

from harness.values.graph import Graph
from harness.values.schedule import Schedule

NOT_BY_AUTO = "it batches nothing: the base that others are compared with"


def schedule(graph: Graph) -> Schedule:
    """Execute vertex after vertex."""
    n = graph.n_vertices
    return Schedule.proved(np.arange(n, dtype=np.int32), np.arange(n + 1, dtype=np.int32))
