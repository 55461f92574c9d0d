"""Children's states that are copied side by side; the others are read where they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.engine.lowering.placed import Placed
from harness.engine.lowering.plan import (
    Buffer,
    BufferName,
    GatherStep,
    Memory,
    Ref,
    Role,
    gradient_buffer,
)
from harness.engine.lowering.uses import Uses
from harness.vertex.operators import Node

GATHERS = ("gather", "gather_each")


@dataclass(frozen=True, slots=True)
class Gathers:
    """Places of what is copied; the slots that are read of each state; the copies."""

    placed: Placed
    slots: Mapping[str, tuple[int, ...]]
    steps: tuple[GatherStep, ...]


def place_state_gradients(nodes: Sequence[Node]) -> Placed:
    """Gradients of the vertex's own states, to which its parents have added."""
    placed = Placed()
    for i, node in enumerate(nodes):
        if node.op == "state_gradient":
            placed = placed.filling(i, node, gradient_buffer(node.name), Memory.GRADIENT)
    return placed


def place_gathers(uses: Uses) -> Gathers:
    """One buffer for all gathers of a state of which any needs a copy."""
    slots = _find_slots(uses.nodes)
    copied = {
        (node.op, node.name)
        for i, node in enumerate(uses.nodes)
        if node.op in GATHERS and _needs_copy(uses, i)
    }
    placed = Placed()
    steps: dict[BufferName, GatherStep] = {}
    for i, node in enumerate(uses.nodes):
        if (node.op, node.name) in copied:
            name = BufferName(Role(node.op), node.name)
            mine = slots[node.name] if node.op == "gather" else None
            steps[name] = GatherStep(name, node.name, mine)
            placed = _place_gather(placed, i, node, steps[name])
    return Gathers(placed, slots, tuple(steps.values()))


def _find_slots(nodes: Sequence[Node]) -> dict[str, tuple[int, ...]]:
    slots: dict[str, tuple[int, ...]] = {}
    for node in nodes:
        if node.op == "gather":
            slots[node.name] = tuple(sorted({*slots.get(node.name, ()), node.index}))
    return slots


def _needs_copy(uses: Uses, i: int) -> bool:
    if i in uses.results.shown or i in uses.results.scattered:
        return True
    if not uses.consumers[i]:
        return False
    return not uses.abilities.reads_children or any(
        not uses.is_elementwise(k) and uses.nodes[k].op != "sum_edges" for k in uses.consumers[i]
    )


def _place_gather(placed: Placed, i: int, node: Node, step: GatherStep) -> Placed:
    n_slots = 1 if step.slots is None else len(step.slots)
    column = 0 if step.slots is None else step.slots.index(node.index) * node.width
    buffer = Buffer(step.buffer, Memory.SAVED, n_slots * node.width, node.domain)
    return placed.having(buffer).at(i, Ref(step.buffer, column, node.width))
