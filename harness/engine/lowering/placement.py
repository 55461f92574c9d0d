"""Where every value of a program lives.

A scattered value is computed in its state row; gathered slots lie side by side; the parts of a
concatenation are computed inside it; a slice is a view; an elementwise result takes the place of an
operand that dies. Inside a fused group a value that nobody else reads has no place at all. Values
lie where a layout of the vertex function wants them, if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from harness.engine.lowering.analysis import MATMULS, Group, Uses
from harness.engine.lowering.plan import (
    WHOLE_STAGES,
    Buffer,
    BufferName,
    CopyStep,
    GatherStep,
    Memory,
    Ref,
    Role,
    count_slots,
    gradient_buffer,
    state_buffer,
)
from harness.vertex.subgraph.columns import Place

GATHERS = ("gather", "gather_each")
APPLIED = ("apply", "apply_transposed")  # a vector times a matrix of the vertex itself
# Buffers in which values of several nodes lie side by side.
SHARED = (Role.AREA, Role.GATHER, Role.GATHER_EACH)


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
    placer = Placer(uses)
    placer.place_state_gradients()
    gather_steps = placer.place_gathers()
    placer.place_in_areas(columns)
    copies = placer.place_states()
    placer.place_concatenations()
    placer.place_the_rest()
    buffers = placer.settled()
    return Placement(placer.refs, buffers, placer.slots, gather_steps, copies)


def log_sum(loss: int) -> Ref:
    """Where the logarithm of a loss's sum of exponentials lives."""
    return Ref(BufferName(Role.LOG_SUM, str(loss)), 0, 1)


@dataclass(slots=True)
class Placer:
    """Columns of the nodes that have a place so far, and the buffers that these are columns of.

    slots: that are read of each state.
    """

    uses: Uses
    refs: dict[int, Ref] = field(default_factory=dict)
    buffers: dict[BufferName, Buffer] = field(default_factory=dict)
    slots: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def place_alone(self, i: int, name: BufferName | None = None) -> None:
        """Give a node a buffer of its own."""
        node = self.uses.nodes[i]
        memory = Memory.SCRATCH if name is None else Memory.GRADIENT
        name = name or BufferName(Role.NODE, str(i))
        self.buffers[name] = Buffer(name, memory, node.width, node.domain)
        self.refs[i] = Ref(name, 0, node.width)

    def _place_view(self, i: int) -> None:
        """Place a node that has a place already, or is columns of one that has."""
        if i not in self.refs:
            node = self.uses.nodes[i]
            base = node.inputs[0]
            self._place_view(base)
            self.refs[i] = self.refs[base].columns(node.index, node.width)

    def place_state_gradients(self) -> None:
        """Place gradients of the vertex's own states, to which its parents have added."""
        for i, node in enumerate(self.uses.nodes):
            if node.op == "state_gradient":
                self.place_alone(i, gradient_buffer(node.name))

    # --- children's states: copied side by side, or read where they lie ---

    def place_gathers(self) -> tuple[GatherStep, ...]:
        """Make one buffer for all gathers of a state of which any needs a copy."""
        nodes, steps = self.uses.nodes, dict[BufferName, GatherStep]()
        for node in nodes:
            if node.op == "gather":
                slots = {*self.slots.get(node.name, ()), node.index}
                self.slots[node.name] = tuple(sorted(slots))
        gathers = [i for i, node in enumerate(nodes) if node.op in GATHERS]
        copied = {(nodes[i].op, nodes[i].name) for i in gathers if self._needs_copy(i)}
        in_place = {(nodes[i].op, nodes[i].name) for i in gathers if self._is_multiplied(i)}
        for i in gathers:
            key = nodes[i].op, nodes[i].name
            if key in copied | in_place:
                name = BufferName(Role(nodes[i].op), nodes[i].name)
                slots_of = self.slots[name.of] if nodes[i].op == "gather" else None
                step = GatherStep(name, name.of, slots_of)
                if key in copied:
                    steps[name] = step
                self._place_gather(i, step, Memory.SAVED if key in copied else Memory.CHILDREN)
        return tuple(steps.values())

    def _place_gather(self, i: int, step: GatherStep, memory: Memory) -> None:
        node, n_slots = self.uses.nodes[i], count_slots(step.slots)
        column = 0 if step.slots is None else step.slots.index(node.index) * node.width
        self.buffers[step.buffer] = Buffer(step.buffer, memory, n_slots * node.width, node.domain)
        self.refs[i] = Ref(step.buffer, column, node.width)

    def _needs_copy(self, i: int) -> bool:
        uses = self.uses
        if i in uses.function.results:
            return True
        if not uses.consumers[i]:
            return False
        return not uses.abilities.reads_children or any(
            not uses.is_elementwise(k)
            and uses.nodes[k].op != "sum_edges"
            and not self._multiplies_in_place(k, i)
            for k in uses.consumers[i]
        )

    def _is_multiplied(self, i: int) -> bool:
        return any(self._multiplies_in_place(k, i) for k in self.uses.consumers[i])

    def _multiplies_in_place(self, k: int, i: int) -> bool:
        """Whether k multiplies a child's matrix i, vertex by vertex.

        A product of all vertices' rows at once rearranges a large parameter less often; and where
        it is large, the rows are few beside it.
        """
        largest = self.uses.abilities.largest_in_place
        node, matrix = self.uses.nodes[k], self.uses.nodes[i]
        if matrix.op != "gather" or len(matrix.shape) < 2 or matrix.shape[0] == 1:
            return False
        if node.op in MATMULS:
            n_elements = self.uses.nodes[node.inputs[1]].width
        elif node.op == "outer_sum":
            n_elements = node.width
        else:
            n_elements = matrix.width if node.op in APPLIED else largest + 1
        position = 1 if node.op in APPLIED else 0
        reads_once = node.inputs.count(i) == 1 and node.inputs[position] == i
        return reads_once and n_elements <= largest

    # --- where a layout of the vertex function, states and concatenations want values ---

    def place_in_areas(self, columns: Mapping[int, Place]) -> None:
        """Make one buffer for every area, and place in it those nodes that are not merged."""
        into, after = self.uses.absorption.into, self.uses.absorption.after
        merged = {*into, *(into[product] for product in after)}
        for i, (area, start) in columns.items():
            if i in self.uses.stage_of and i not in merged:
                name, node = BufferName(Role.AREA, area), self.uses.nodes[i]
                width = self.buffers[name].width if name in self.buffers else 0
                width = max(width, start + node.width)
                self.buffers[name] = Buffer(name, Memory.SCRATCH, width, node.domain)
                self.refs[i] = Ref(name, start, node.width)

    def place_states(self) -> tuple[CopyStep, ...]:
        """Give every state its rows; copy what is gathered, sliced, eager or scattered twice."""
        copies: list[CopyStep] = []
        for state, i in self.uses.function.scatter:
            row = Ref(state_buffer(state), 0, self.uses.nodes[i].width)
            self.buffers[row.buffer] = Buffer(row.buffer, Memory.STATE, row.width, "vertex")
            if self.uses.stage_of.get(i) == "batch" and i not in self.refs:
                self.refs[i] = row
            else:
                self.place_value(i)
                copies.append(CopyStep(self.refs[i], row))
        return tuple(copies)

    def place_concatenations(self) -> None:
        """Place all concatenations that have no place, those of others first."""
        for i in reversed(range(len(self.uses.nodes))):
            is_computed = self.uses.nodes[i].op == "concat" and i in self.uses.stage_of
            if is_computed and i not in self.refs:
                self._place_concatenation(i)

    def _place_concatenation(self, i: int) -> None:
        """Where its parts lie already, or in a buffer of its own, and the parts in there."""
        uses, parts = self.uses, self.uses.nodes[i].inputs
        joined = self._side_by_side(parts)
        if joined is not None and not (joined.buffer.is_gathered and self._is_kernel_operand(i)):
            self.refs[i] = joined
            return
        self.place_alone(i)
        start = 0
        for part in parts:
            width = uses.nodes[part].width
            same_stage = uses.stage_of.get(part) == uses.stage_of[i]
            is_alias = uses.is_slice(part) or part in uses.absorption.after.values()
            if part not in self.refs and same_stage and not is_alias:
                self.refs[part] = self.refs[i].columns(start, width)
            start += width

    def _side_by_side(self, parts: tuple[int, ...]) -> Ref | None:
        """The columns that these values fill, if they already lie one behind the other."""
        whole: Ref | None = None
        for part in parts:
            ref = self._settled_place(part)
            if ref is None or (whole is not None and ref != whole.next(ref.width)):
                return None
            whole = ref if whole is None else whole.grown(ref.width)
        return whole

    def _settled_place(self, i: int) -> Ref | None:
        """Where a value is, if that is settled: gathered or in an area, or a slice of such."""
        node = self.uses.nodes[i]
        if node.op == "slice" and i not in self.refs:
            base = self._settled_place(node.inputs[0])
            in_area = base is not None and base.buffer.role is Role.AREA
            return base.columns(node.index, node.width) if base and in_area else None
        ref = self.refs.get(i)
        return ref if ref is not None and ref.buffer.role in SHARED else None

    def _is_kernel_operand(self, i: int) -> bool:
        """Whether a kernel reads i, which takes one child's state at a time only."""
        return any(
            self._is_kernel_operand(k) if self.uses.is_slice(k) else self.uses.is_elementwise(k)
            for k in self.uses.consumers[i]
        )

    # --- everything else: in the place of another value where it can have that ---

    def place_the_rest(self) -> None:
        """Place what is stored, slices of what has a place, and what a loss leaves to others."""
        uses, gradients = self.uses, self.uses.loss_gradients
        for i in range(len(uses.nodes)):
            if i in gradients:
                self.refs[i] = self.refs[gradients[i]]
            elif i in uses.stage_of and uses.is_stored(i):
                self.place_value(i)
        for i in range(len(uses.nodes)):
            if uses.is_slice(i) and uses.root(i) in self.refs:
                self._place_view(i)
        for loss in uses.losses:
            name = log_sum(loss).buffer
            self.buffers[name] = Buffer(name, Memory.SAVED, 1, uses.nodes[loss].domain)

    def place_value(self, i: int) -> None:
        """Give a node the place of another where it can have that, and else a buffer of its own."""
        if i in self.refs:
            return
        if self.uses.is_slice(i):
            self.place_value(self.uses.nodes[i].inputs[0])
            self._place_view(i)
            return
        target = self._sum_grows_from(i)
        if target is not None:
            self.place_value(target)
            self.refs[i] = self.refs[target]
        elif not self.uses.abilities.reuses_places or not self._place_over_operand(i):
            self.place_alone(i)

    def _sum_grows_from(self, i: int) -> int | None:
        """What products add to that leave this sum behind, if i is one."""
        absorption = self.uses.absorption
        return next((to for k, to in absorption.after.items() if absorption.into[k] == i), None)

    def _place_over_operand(self, i: int) -> bool:
        """Place a node over an operand of its group whose place is free once the group has run.

        A group reads and writes column by column: a result over columns that another operand reads
        shifted would be read in place of what stood there.
        """
        uses = self.uses
        if not uses.is_elementwise(i) or i in uses.absorption.merged:
            return False
        group = uses.group_of[i]
        taken = {ref for k, ref in self.refs.items() if k in group}
        operands = [k for member in group for k in uses.nodes[member].inputs]
        read = {ref for k in operands if (ref := self._columns_of(k)) is not None}
        for operand in operands:
            root = uses.root(operand)
            if root not in self.refs or uses.stage_of.get(root) != uses.stage_of[i]:
                continue
            self._place_view(operand)
            ref = self.refs[operand]
            fits = ref not in taken and ref.width == uses.nodes[i].width
            shifted = any(ref.overlaps(other) and ref != other for other in read)
            if fits and not shifted and self._becomes_free(operand, group):
                self.refs[i] = ref
                return True
        return False

    def _columns_of(self, i: int) -> Ref | None:
        """Where a value lies, or what it is a slice of, if that is settled."""
        if i in self.refs or not self.uses.is_slice(i):
            return self.refs.get(i)
        node = self.uses.nodes[i]
        whole = self._columns_of(node.inputs[0])
        return None if whole is None else whole.columns(node.index, node.width)

    def _becomes_free(self, operand: int, group: Group) -> bool:
        """Whether nobody but the group reads the columns of a placed operand, nor the outside."""
        uses, ref, root = self.uses, self.refs[operand], self.uses.root(operand)
        if self.buffers[ref.buffer].memory not in (Memory.SCRATCH, Memory.SAVED):
            return False
        if ref.buffer.is_gathered or root in group:
            return False
        if root in uses.function.shown or root in uses.absorption.into:
            return False
        others = [k for k, other in self.refs.items() if ref.overlaps(other)]
        return all(self._dies_in(k, group) for k in others) and self._slices_die_in(root, group)

    def _dies_in(self, i: int, group: Group) -> bool:
        """Whether a group is the last to read a value, but for its slices."""
        readers = [k for k in self.uses.consumers[i] if not self.uses.is_slice(k)]
        return i not in self.uses.kept and all(k in group for k in readers)

    def _slices_die_in(self, root: int, group: Group) -> bool:
        """Whether a group is the last to read a value and its slices, placed or not."""
        uses = self.uses
        slices = [k for k in uses.consumers[root] if uses.is_slice(k)]
        own = [k for k in uses.consumers[root] if not uses.is_slice(k)]
        readers = [*own, *(reader for k in slices for reader in uses.consumers[k])]
        return all(k not in uses.kept for k in slices) and all(k in group for k in readers)

    def settled(self) -> dict[BufferName, Buffer]:
        """Buffers; those read in another stage than they are written in keep their rows."""
        saved = {ref.buffer for i, ref in self.refs.items() if self._outlives_its_stage(i)}
        return {
            name: replace(buffer, memory=Memory.SAVED)
            if name in saved and buffer.memory is Memory.SCRATCH
            else buffer
            for name, buffer in self.buffers.items()
        }

    def _outlives_its_stage(self, i: int) -> bool:
        if i in self.uses.function.shown:  # a slice too, which has no stage of its own
            return True
        if i not in self.uses.stage_of:
            return False
        stage = self.uses.stage_of[i]
        return stage in WHOLE_STAGES or self._is_read_elsewhere(i, stage)

    def _is_read_elsewhere(self, i: int, stage: str) -> bool:
        """Whether a later stage reads i; a sparse gradient is read as late as in the update."""
        uses = self.uses
        return any(
            self._is_read_elsewhere(k, stage)
            if uses.is_slice(k)
            else uses.stage_of.get(k, stage) != stage or uses.nodes[k].op == "row_sum"
            for k in uses.consumers[i]
        )
