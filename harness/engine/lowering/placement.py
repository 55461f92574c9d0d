"""Where every value of a program lives.

A scattered value is computed in its state row; gathered slots lie side by side; the parts of a
concatenation are computed inside it; a slice is a view; an elementwise result takes the place of an
operand that dies. Inside a fused group a value that nobody else reads has no place at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.engine.lowering.areas import place_in_areas
from harness.engine.lowering.concatenations import place_concatenations
from harness.engine.lowering.gathers import place_gathers, place_state_gradients
from harness.engine.lowering.placed import Placed, place_view
from harness.engine.lowering.plan import (
    Buffer,
    BufferName,
    CopyStep,
    GatherStep,
    Memory,
    Ref,
    Role,
)
from harness.engine.lowering.reuse import place_value
from harness.engine.lowering.states import place_states
from harness.engine.lowering.uses import Uses
from harness.vertex.subgraph.columns import Place

WHOLE_STAGES = ("eager", "lazy", "backward_lazy")


@dataclass(frozen=True, slots=True)
class Placement:
    """Buffers of one program, and the columns of them that hold each stored node.

    slots: of each state, those that are gathered, in the order of the gather's columns.
    gather_steps, state_copies: before and behind the operators of a batch.

    Raises ValueError where a node lies outside of all buffers.
    """

    refs: Mapping[int, Ref]
    buffers: Mapping[BufferName, Buffer]
    slots: Mapping[str, tuple[int, ...]]
    gather_steps: tuple[GatherStep, ...]
    state_copies: tuple[CopyStep, ...]

    def __post_init__(self) -> None:
        outside = [i for i, ref in self.refs.items() if not self._is_inside(ref)]
        if outside:
            raise ValueError(f"nodes {outside} lie outside of all buffers")

    def _is_inside(self, ref: Ref) -> bool:
        buffer = self.buffers.get(ref.buffer)
        return buffer is not None and 0 <= ref.start <= buffer.width - ref.width


def place(uses: Uses, columns: Mapping[int, Place]) -> Placement:
    """Place all values of a program that need it; what is placed first has the first choice.

    columns: where a layout wants values to lie.
    """
    gathers = place_gathers(uses)
    placed = place_state_gradients(uses.nodes).joined(gathers.placed)
    states = place_states(uses, placed.joined(place_in_areas(uses, columns)))
    placed = place_concatenations(uses, states.placed)
    placed = _place_views(uses, _place_the_rest(uses, placed))
    placed = _place_losses(uses, placed)
    buffers = _settled(uses, placed)
    return Placement(placed.refs, buffers, gathers.slots, gathers.steps, states.copies)


def _place_the_rest(uses: Uses, placed: Placed) -> Placed:
    for i in range(len(uses.nodes)):
        if i in uses.losses.gradients:
            placed = placed.at(i, placed.refs[uses.losses.gradients[i]])
        elif i in uses.stage_of and uses.is_stored(i):
            placed = place_value(uses, placed, i)
    return placed


def log_sum(loss: int) -> Ref:
    """Where the logarithm of a loss's sum of exponentials lives."""
    return Ref(BufferName(Role.LOG_SUM, str(loss)), 0, 1)


def _place_losses(uses: Uses, placed: Placed) -> Placed:
    """Room for what a loss leaves to those who read the logits."""
    for loss in uses.losses.by_loss:
        name = log_sum(loss).buffer
        placed = placed.having(Buffer(name, Memory.SAVED, 1, uses.nodes[loss].domain))
    return placed


def _place_views(uses: Uses, placed: Placed) -> Placed:
    """Place the slices of what has a place."""
    for i in range(len(uses.nodes)):
        if uses.is_slice(i) and uses.root(i) in placed.refs:
            placed = place_view(uses, placed, i)
    return placed


def _settled(uses: Uses, placed: Placed) -> dict[BufferName, Buffer]:
    """Buffers; those read in another stage than they are written in keep their rows."""
    saved = {ref.buffer for i, ref in placed.refs.items() if _outlives_its_stage(uses, i)}
    return {
        name: replace(buffer, memory=Memory.SAVED)
        if name in saved and buffer.memory is Memory.SCRATCH
        else buffer
        for name, buffer in placed.buffers.items()
    }


def _outlives_its_stage(uses: Uses, i: int) -> bool:
    if i in uses.results.shown:  # a slice too, which has no stage of its own
        return True
    if i not in uses.stage_of:
        return False
    stage = uses.stage_of[i]
    return stage in WHOLE_STAGES or _read_elsewhere(uses, i, stage)


def _read_elsewhere(uses: Uses, i: int, stage: str) -> bool:
    """Whether a later stage reads i; a sparse gradient is read as late as in the update."""
    return any(
        _read_elsewhere(uses, k, stage)
        if uses.is_slice(k)
        else uses.stage_of.get(k, stage) != stage or uses.nodes[k].op == "row_sum"
        for k in uses.consumers[i]
    )
