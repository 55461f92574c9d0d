"""Values that lie where a layout of the vertex function wants them, and values side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.engine.lowering.placed import Placed
from harness.engine.lowering.plan import Buffer, BufferName, Memory, Ref, Role
from harness.engine.lowering.uses import Uses
from harness.vertex.operators import Node
from harness.vertex.subgraph.columns import Place

# Buffers in which values of several nodes lie side by side.
SHARED = (Role.AREA, Role.GATHER, Role.GATHER_EACH)


def place_in_areas(uses: Uses, columns: Mapping[int, Place]) -> Placed:
    """One buffer for every area, and in it those nodes that are not merged with others.

    columns: what the layout has for each node.
    """
    into, after = uses.absorption.into, uses.absorption.after
    merged = {*into, *(into[product] for product in after)}
    placed = Placed()
    for i, (area, start) in columns.items():
        if i in uses.stage_of and i not in merged:
            name, node = BufferName(Role.AREA, area), uses.nodes[i]
            width = placed.buffers[name].width if name in placed.buffers else 0
            wider = Buffer(name, Memory.SCRATCH, max(width, start + node.width), node.domain)
            placed = placed.having(wider).at(i, Ref(name, start, node.width))
    return placed


def side_by_side(
    nodes: Sequence[Node], refs: Mapping[int, Ref], parts: Sequence[int]
) -> Ref | None:
    """The columns that these values fill, if they already lie one behind the other."""
    whole: Ref | None = None
    for part in parts:
        ref = _place(nodes, refs, part)
        if ref is None or (whole is not None and ref != whole.next(ref.width)):
            return None
        whole = ref if whole is None else whole.grown(ref.width)
    return whole


def _place(nodes: Sequence[Node], refs: Mapping[int, Ref], i: int) -> Ref | None:
    """Where a value is, if that is settled: gathered or in an area, or a slice of such."""
    if nodes[i].op == "slice" and i not in refs:
        base = _place(nodes, refs, nodes[i].inputs[0])
        in_area = base is not None and base.buffer.role is Role.AREA
        return base.columns(nodes[i].index, nodes[i].width) if base and in_area else None
    ref = refs.get(i)
    return ref if ref is not None and ref.buffer.role in SHARED else None
