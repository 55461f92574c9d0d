"""Scattered values, which are computed in the rows of their states, or copied there."""

from __future__ import annotations

from dataclasses import dataclass

from harness.engine.lowering.placed import Placed
from harness.engine.lowering.plan import Buffer, CopyStep, Memory, Ref, state_buffer
from harness.engine.lowering.reuse import place_value
from harness.engine.lowering.uses import Uses


@dataclass(frozen=True, slots=True)
class States:
    """Places of what is scattered, and of all placed before; copies behind the batch."""

    placed: Placed
    copies: tuple[CopyStep, ...]


def place_states(uses: Uses, placed: Placed) -> States:
    """Give every state its rows; copy what is gathered, sliced, eager or scattered twice."""
    copies: list[CopyStep] = []
    for state, i in uses.results.scatter:
        row = Ref(state_buffer(state), 0, uses.nodes[i].width)
        placed = placed.having(Buffer(row.buffer, Memory.STATE, row.width, "vertex"))
        if uses.stage_of.get(i) == "batch" and i not in placed.refs:
            placed = placed.at(i, row)
        else:
            placed = place_value(uses, placed, i)
            copies.append(CopyStep(placed.refs[i], row))
    return States(placed, tuple(copies))
