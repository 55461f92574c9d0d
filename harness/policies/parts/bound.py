"""Lower bound of ED-Batch on the number of batches of a graph."""

from __future__ import annotations

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.policies.parts.segments import cut_in_segments
from dynbatch.harness.values.arrays import Ints
from dynbatch.harness.values.graph import UNBATCHABLE, Graph


def compute_lower_bound(graph: Graph) -> int:
    """Return LB(G).

    Every unbatchable vertex is a batch; a path with k vertices of one type needs k batches of it.
    Each graph segment has its own bound, as no batch contains vertices of two segments.

    Source: Chen et al., "ED-Batch", ICML 2023, appendix A.3.
    """
    if graph.segments is not None:
        return sum(compute_lower_bound(part) for part in cut_in_segments(graph).graphs)
    return int(_compute_bound(graph.types, graph.arg_start, graph.args, graph.n_types))


@compiled
def _compute_bound(types: Ints, arg_start: Ints, args: Ints, n_types: int) -> int:
    size = np.zeros(n_types, np.int32)
    for v in range(len(types)):
        size[types[v]] += 1
    bound = int(size[UNBATCHABLE])
    longest = np.empty(len(types), np.int32)  # vertices of type t on a path to here
    for t in range(UNBATCHABLE + 1, n_types):
        if size[t] == 0:
            continue
        deepest = 0
        for v in range(len(types)):
            path = 0
            for edge in range(arg_start[v], arg_start[v + 1]):
                path = max(path, longest[args[edge]])
            longest[v] = path + (1 if types[v] == t else 0)
            deepest = max(deepest, longest[v])
        bound += deepest
    return bound
