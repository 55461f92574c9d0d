"""Inline depth: batches of equal phase, depth and type, as a program counted while it ran.

Source: ACRoBat (Fegade, Chen, Gibbons and Mowry, MLSys 2024), sections 4.1 and B.3: no pass over
the graph is needed once it is recorded. Graphs that were built from arrays are gone through once
(parts/inline.py). Whether stages are phases and ghosts are counted is decided where a program is
recorded (harness.programs.recorder.RecordingOptions; options of system=acrobat).
"""

from __future__ import annotations

from harness.compiler.compiled import compiled
from harness.policies.parts.inline import by_counters, levels_in_order, phases_and_depths
from harness.policies.parts.levels import by_level
from harness.values.arrays import Ints
from harness.values.graph import Graph
from harness.values.schedule import Schedule


def schedule(graph: Graph) -> Schedule:
    """Execute groups in increasing (phase, depth, type)."""
    if graph.phases is None or graph.depths is None:
        return Schedule.proved(*_found(graph.types, graph.arg_start, graph.args, graph.follows))
    return Schedule.proved(*by_counters(graph.types, graph.follows, graph.phases, graph.depths))


@compiled
def _found(types: Ints, arg_start: Ints, args: Ints, follows: Ints) -> tuple[Ints, Ints]:
    phases, depths = phases_and_depths(types, arg_start, args, follows)
    return by_level(types, follows, levels_in_order(phases, depths), 0)
