"""Children's states that are copied side by side; the others are read where they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.engine.lowering.absorption import MATMULS
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
APPLIED = ("apply", "apply_transposed")  # a vector times a matrix of the vertex itself


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
    in_place = {
        (node.op, node.name) for i, node in enumerate(uses.nodes) if _is_multiplied(uses, i)
    }
    placed = Placed()
    steps: dict[BufferName, GatherStep] = {}
    for i, node in enumerate(uses.nodes):
        if (node.op, node.name) in copied:
            name = BufferName(Role(node.op), node.name)
            mine = slots[node.name] if node.op == "gather" else None
            steps[name] = GatherStep(name, node.name, mine)
            placed = _place_gather(placed, i, node, steps[name])
        elif (node.op, node.name) in in_place:
            name = BufferName(Role(node.op), node.name)
            step = GatherStep(name, node.name, slots[node.name])
            placed = _place_gather(placed, i, node, step, Memory.CHILDREN)
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
        not uses.is_elementwise(k)
        and uses.nodes[k].op != "sum_edges"
        and not _multiplies_in_place(uses, k, i)
        for k in uses.consumers[i]
    )


def _is_multiplied(uses: Uses, i: int) -> bool:
    return uses.nodes[i].op in GATHERS and any(
        _multiplies_in_place(uses, k, i) for k in uses.consumers[i]
    )


def _multiplies_in_place(uses: Uses, k: int, i: int) -> bool:
    """Whether k multiplies a child's matrix i, vertex by vertex.

    A product of all vertices' rows at once rearranges a large parameter less often; and where it is
    large, the rows are few beside it.
    """
    node, matrix = uses.nodes[k], uses.nodes[i]
    if matrix.op != "gather" or len(matrix.shape) < 2 or matrix.shape[0] == 1:
        return False
    if node.op in MATMULS:
        n_elements = uses.nodes[node.inputs[1]].width
    elif node.op == "outer_sum":
        n_elements = node.width
    else:
        n_elements = matrix.width if node.op in APPLIED else uses.abilities.largest_in_place + 1
    position = 1 if node.op in APPLIED else 0
    reads_once = node.inputs.count(i) == 1 and node.inputs[position] == i
    return reads_once and n_elements <= uses.abilities.largest_in_place


def _place_gather(
    placed: Placed, i: int, node: Node, step: GatherStep, memory: Memory = Memory.SAVED
) -> Placed:
    n_slots = 1 if step.slots is None else len(step.slots)
    column = 0 if step.slots is None else step.slots.index(node.index) * node.width
    buffer = Buffer(step.buffer, memory, n_slots * node.width, node.domain)
    return placed.having(buffer).at(i, Ref(step.buffer, column, node.width))
