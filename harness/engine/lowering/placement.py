"""Where every value of a program lives.

A scattered value is computed in its state row; gathered slots lie side by side; the parts of a
concatenation are computed inside it; a slice is a view; an elementwise result takes the place of an
operand that dies. Inside a fused group a value that nobody else reads has no place at all. Values
lie where a layout of the vertex function wants them, if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.engine.lowering.analysis import MATMULS, Uses
from harness.engine.lowering.plan import (
    WHOLE_STAGES,
    Buffer,
    BufferName,
    CopyStep,
    GatherStep,
    Memory,
    Ref,
    Role,
    gradient_buffer,
    state_buffer,
)
from harness.vertex.operators import Node
from harness.vertex.subgraph.columns import Place


@dataclass(frozen=True, slots=True)
class Placed:
    """Columns of nodes, and the buffers that these are columns of."""

    refs: Mapping[int, Ref] = field(default_factory=dict)
    buffers: Mapping[BufferName, Buffer] = field(default_factory=dict)

    def at(self, i: int, ref: Ref) -> Placed:
        """With node i at these columns."""
        return Placed({**self.refs, i: ref}, self.buffers)

    def having(self, buffer: Buffer) -> Placed:
        """With one more buffer."""
        return Placed(self.refs, {**self.buffers, buffer.name: buffer})

    def joined(self, other: Placed) -> Placed:
        """With all of another."""
        return Placed({**self.refs, **other.refs}, {**self.buffers, **other.buffers})

    def filling(self, i: int, node: Node, name: BufferName, memory: Memory) -> Placed:
        """With node i alone in a buffer of its width."""
        buffer = Buffer(name, memory, node.width, node.domain)
        return self.having(buffer).at(i, Ref(name, 0, node.width))


def place_alone(uses: Uses, placed: Placed, i: int) -> Placed:
    """Give a node a buffer of its own."""
    return placed.filling(i, uses.nodes[i], BufferName(Role.NODE, str(i)), Memory.SCRATCH)


def place_view(uses: Uses, placed: Placed, i: int) -> Placed:
    """Place a node that has a place already, or is columns of one that has."""
    if i in placed.refs:
        return placed
    node = uses.nodes[i]
    base = node.inputs[0]
    placed = place_view(uses, placed, base)
    return placed.at(i, placed.refs[base].columns(node.index, node.width))


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


def place_value(uses: Uses, placed: Placed, i: int) -> Placed:
    """Give a node the place of another where it can have that, and else a buffer of its own."""
    if i in placed.refs:
        return placed
    if uses.is_slice(i):
        return place_view(uses, place_value(uses, placed, uses.nodes[i].inputs[0]), i)
    target = _sum_grows_from(uses, i)
    if target is not None:
        placed = place_value(uses, placed, target)
        return placed.at(i, placed.refs[target])
    if not uses.abilities.reuses_places:
        return place_alone(uses, placed, i)
    return _place_over_operand(uses, placed, i)


def _sum_grows_from(uses: Uses, i: int) -> int | None:
    """What products add to that leave this sum behind, if i is one."""
    targets = uses.absorption.after.items()
    return next((to for product, to in targets if uses.absorption.into[product] == i), None)


def _place_over_operand(uses: Uses, placed: Placed, i: int) -> Placed:
    """Place a node over an operand of its group whose place is free once the group has run."""
    if not uses.is_elementwise(i) or i in uses.absorption.merged:
        return place_alone(uses, placed, i)
    group = uses.group_of[i]
    taken = {ref for k, ref in placed.refs.items() if k in group}
    operands = [k for member in group for k in uses.nodes[member].inputs]
    read = {ref for k in operands if (ref := _columns_of(uses, placed, k)) is not None}
    for operand in operands:
        root = uses.root(operand)
        if root not in placed.refs or uses.stage_of.get(root) != uses.stage_of[i]:
            continue
        placed = place_view(uses, placed, operand)
        ref = placed.refs[operand]
        fits = ref not in taken and ref.width == uses.nodes[i].width
        shifted = any(_overlap(ref, other) and ref != other for other in read)
        if fits and not shifted and _becomes_free(uses, placed, operand, group):
            return placed.at(i, ref)
    return place_alone(uses, placed, i)


def _columns_of(uses: Uses, placed: Placed, i: int) -> Ref | None:
    """Where a value lies, its own place or that of the value it is a slice of, if that is settled.

    A group reads and writes column by column: a result over columns that another operand reads
    shifted would be read in place of what stood there.
    """
    if i in placed.refs or not uses.is_slice(i):
        return placed.refs.get(i)
    node = uses.nodes[i]
    whole = _columns_of(uses, placed, node.inputs[0])
    return None if whole is None else whole.columns(node.index, node.width)


def _becomes_free(uses: Uses, placed: Placed, operand: int, group: tuple[int, ...]) -> bool:
    """Whether nobody but the group reads the columns of a placed operand, nor the outside."""
    ref, root = placed.refs[operand], uses.root(operand)
    if placed.buffers[ref.buffer].memory not in (Memory.SCRATCH, Memory.SAVED):
        return False
    if ref.buffer.is_gathered or root in group:
        return False
    if root in uses.results.shown or root in uses.absorption.into:
        return False
    others = [k for k, other in placed.refs.items() if _overlap(ref, other)]
    return all(_dies_in(uses, k, group) for k in others) and _slices_die_in(uses, root, group)


def _overlap(one: Ref, other: Ref) -> bool:
    apart = one.start + one.width <= other.start or other.start + other.width <= one.start
    return one.buffer == other.buffer and not apart


def _dies_in(uses: Uses, i: int, group: tuple[int, ...]) -> bool:
    """Whether a group is the last to read a value, but for its slices."""
    readers = [k for k in uses.consumers[i] if not uses.is_slice(k)]
    return i not in uses.kept and all(k in group for k in readers)


def _slices_die_in(uses: Uses, root: int, group: tuple[int, ...]) -> bool:
    """Whether a group is the last to read a value and its slices, placed or not."""
    slices = [k for k in uses.consumers[root] if uses.is_slice(k)]
    own = [k for k in uses.consumers[root] if not uses.is_slice(k)]
    readers = [*own, *(reader for k in slices for reader in uses.consumers[k])]
    return all(k not in uses.kept for k in slices) and all(k in group for k in readers)


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
