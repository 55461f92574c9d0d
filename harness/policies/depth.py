"""Depth batching: vertices of equal depth and type share a batch.

Sources: Looks et al., "Deep Learning with Dynamic Computation Graphs", ICLR 2017 (in its release
tensorflow_fold/loom/weaver.cc), and DyNet's by-depth strategy (Neubig et al., NIPS 2017;
dynet/exec.cc). Depth is the longest path from the sources, parameter vertices included; types that
must follow come behind their block, as in ED-Batch's release.
"""

from __future__ import annotations

from harness.compiler.compiled import compiled
from harness.policies.parts.levels import by_level, levels_of
from harness.values.arrays import Ints
from harness.values.graph import Graph
from harness.values.schedule import Schedule


def schedule(graph: Graph) -> Schedule:
    """Execute groups in increasing (depth, type)."""
    return Schedule.proved(*_batches(graph.types, graph.arg_start, graph.args, graph.follows))


@compiled
def _batches(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    return by_level(types, follows, levels_of(types, arg_start, args, follows, True), 1)
