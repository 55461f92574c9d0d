"""Concatenations, whose parts are computed inside them."""

from __future__ import annotations

from harness.engine.lowering.areas import side_by_side
from harness.engine.lowering.placed import Placed, place_alone
from harness.engine.lowering.uses import Uses


def place_concatenations(uses: Uses, placed: Placed) -> Placed:
    """Place all concatenations that have no place, those of others first."""
    for i in reversed(range(len(uses.nodes))):
        if uses.nodes[i].op == "concat" and i in uses.stage_of and i not in placed.refs:
            placed = _place_concatenation(uses, placed, i)
    return placed


def _place_concatenation(uses: Uses, placed: Placed, i: int) -> Placed:
    """Where its parts lie already, or in a buffer of its own, and the parts in there."""
    joined = side_by_side(uses.nodes, placed.refs, uses.nodes[i].inputs)
    if joined is not None and not (joined.buffer.is_gathered and _is_kernel_operand(uses, i)):
        return placed.at(i, joined)
    placed = place_alone(uses, placed, i)
    start = 0
    for part in uses.nodes[i].inputs:
        width = uses.nodes[part].width
        same_stage = uses.stage_of.get(part) == uses.stage_of[i]
        if part not in placed.refs and same_stage and not _is_alias(uses, part):
            placed = placed.at(part, placed.refs[i].columns(start, width))
        start += width
    return placed


def _is_kernel_operand(uses: Uses, i: int) -> bool:
    """Whether a kernel reads i, which takes one child's state at a time only."""
    return any(
        _is_kernel_operand(uses, k) if uses.is_slice(k) else uses.is_elementwise(k)
        for k in uses.consumers[i]
    )


def _is_alias(uses: Uses, i: int) -> bool:
    return uses.is_slice(i) or i in uses.absorption.after.values()
