"""Policies that batch by level: depth, frontier and inline depth; and execution without batches.

depth: Depth is the longest path from the sources, parameter vertices included. Types that must
follow another come after their block, as in ED-Batch's release. Source: Looks et al., "Deep
Learning with Dynamic Computation Graphs", ICLR 2017 (tensorflow_fold/loom/weaver.cc in its
release), and DyNet's by-depth strategy (Neubig et al., NIPS 2017; dynet/exec.cc).

frontier: Cavs's wavefront runs a vertex in the level after its last argument's. The levels are
computed directly here, as vertices are in topological order. Cavs has one vertex function, so its
levels are single batches; here a level has one batch per type. Vertices that must follow a batch
are in its level (`depth` puts them in the next one, the only difference between the two). Source:
Xu et al., "Cavs: An Efficient Runtime System for Dynamic Neural Networks", ATC 2018, Alg. 1.

inline_depth: A recorded graph needs no pass. A graph built from arrays needs one (parts/levels.py).
The recorder of a program decides if stages are phases and if ghosts are counted
(dynbatch.harness.programs.blocks.RecordingOptions; options of system=acrobat). Source: ACRoBat
(Fegade, Chen, Gibbons and Mowry, MLSys 2024), sections 4.1 and B.3.

unbatched: Every vertex is a separate batch. Source: DyNet with autobatching off
(SimpleExecutionEngine in dynet/exec.cc), and Cavs's serial policy (SerialGraphScheduler in its
release's cavs/midend/graph_scheduler.cc).
"""

from __future__ import annotations

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.contracts.policy import ArrayPolicy
from dynbatch.harness.policies.parts.levels import (
    batch_by_counters,
    batch_by_level,
    compute_levels,
    compute_phases_and_depths,
)
from dynbatch.harness.values.arrays import Ints

POLICIES = {
    "depth": "schedule_by_depth",
    "frontier": "schedule_by_frontier",
    "inline_depth": "schedule_by_inline_depth",
    "unbatched": "schedule_unbatched",
}


@compiled
def _batch_by_depth(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    """Execute groups in increasing order of (depth, type)."""
    return _compute_batches(types, arg_start, args, follows, True)


@compiled
def _batch_by_frontier(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints
) -> tuple[Ints, Ints]:
    """Execute level by level, one batch of each type that is ready when the level starts."""
    return _compute_batches(types, arg_start, args, follows, False)


@helper
def _compute_batches(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints, count_followers: bool
) -> tuple[Ints, Ints]:
    levels = compute_levels(types, arg_start, args, follows, count_followers)
    return batch_by_level(types, follows, levels, 1 if count_followers else 0)


@compiled
def _batch_by_inline_depth(
    types: Ints, arg_start: Ints, args: Ints, follows: Ints, phases: Ints, depths: Ints
) -> tuple[Ints, Ints]:
    """Execute groups in increasing order of (phase, depth, type), as counted by the program."""
    if len(phases) < len(types):  # no program recorded the graph
        phases, depths = compute_phases_and_depths(types, arg_start, args, follows)
    return batch_by_counters(types, follows, phases, depths)


@compiled
def _batch_singly(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    """Execute one vertex at a time, in order of creation."""
    order, starts = np.empty(len(types), np.int32), np.zeros(len(types) + 1, np.int32)
    for v in range(len(types)):
        order[v], starts[v + 1] = v, v + 1
    return order, starts


schedule_by_depth = ArrayPolicy(_batch_by_depth)
schedule_by_frontier = ArrayPolicy(_batch_by_frontier)
schedule_by_inline_depth = ArrayPolicy(_batch_by_inline_depth, ("follows", "phases", "depths"))
schedule_unbatched = ArrayPolicy(_batch_singly)
