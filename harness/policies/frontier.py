"""Frontier batching: in each round, one batch for every type that was ready when the round began.

Source: Xu et al., "Cavs: An Efficient Runtime System for Dynamic Neural Networks", ATC 2018,
Alg. 1. Cavs's wavefront runs a vertex in the round after its last argument; rounds are computed
here directly, since vertices are in topological order. Cavs has one vertex function, so that its
rounds are single batches; here a round has one batch for each type, and what must follow a batch is
in its round (`depth` gives it a level of its own, the only difference between the two).
"""

from __future__ import annotations

from harness.compiler.compiled import compiled
from harness.policies.parts.levels import by_level, levels_of
from harness.values.arrays import Ints
from harness.values.graph import Graph
from harness.values.schedule import Schedule


def schedule(graph: Graph) -> Schedule:
    """Execute round after round, types in increasing order."""
    return Schedule.proved(*_batches(graph.types, graph.arg_start, graph.args, graph.follows))


@compiled
def _batches(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    return by_level(types, follows, levels_of(types, arg_start, args, follows, False), 0)
