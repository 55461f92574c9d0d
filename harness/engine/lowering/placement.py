"""Placement of every value of a program in columns of buffers.

* A scattered value is computed directly in its state row.
* Gathered slots are adjacent, and the parts of a concatenation are computed inside it.
* A slice is a view.
* An elementwise result overwrites an operand that is not needed again.
* A value inside a fused group that no other operator reads has no memory.

If there is a layout of the vertex function, it determines the columns of its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dynbatch.harness.engine.lowering.absorption import MATMULS
from dynbatch.harness.engine.lowering.analysis import Group, Uses
from dynbatch.harness.engine.lowering.plan import (
    WHOLE_STAGES,
    Buffer,
    BufferName,
    CopyStep,
    GatherStep,
    MemoryKind,
    Ref,
    Role,
    count_slots,
    name_gradient_buffer,
    name_state_buffer,
)
from dynbatch.harness.vertex.subgraph.columns import Place

GATHERS = ("gather", "gather_each")
APPLIED = ("apply", "apply_transposed")  # a vector times a matrix of the vertex itself
# Buffers that hold values of several nodes in adjacent columns.
SHARED = (Role.AREA, Role.GATHER, Role.GATHER_EACH)


@dataclass(frozen=True, slots=True)
class Placement:
    """Buffers of one program, and the columns of each stored node.

    Attributes:
        slots: For each state, the gathered slots in the order of the gather's columns.
        gather_steps: Steps that run before the operators of a batch.
        state_copies: Steps that run after the operators of a batch.

    Raises:
        ValueError: A node is outside of all buffers.
    """

    refs: Mapping[int, Ref]
    buffers: Mapping[BufferName, Buffer]
    slots: Mapping[str, tuple[int, ...]]
    gather_steps: tuple[GatherStep, ...]
    state_copies: tuple[CopyStep, ...]

    def __post_init__(self) -> None:
        outside = [i for i, ref in self.refs.items() if not self._is_inside(ref)]
        if outside:
            raise ValueError(f"nodes {outside} are outside all buffers")

    def _is_inside(self, ref: Ref) -> bool:
        buffer = self.buffers.get(ref.buffer)
        return buffer is not None and 0 <= ref.start <= buffer.width - ref.width


def place(uses: Uses, columns: Mapping[int, Place]) -> Placement:
    """Place all values of a program that need memory; earlier choices constrain later ones.

    Args:
        columns: Columns that a layout of the vertex function chose, by node.
    """
    placer = Placer(uses)
    placer.place_state_gradients()
    gather_steps = placer.place_gathers()
    placer.place_in_areas(columns)
    copies = placer.place_states()
    placer.place_concatenations()
    placer.place_the_rest()
    buffers = placer.settle_buffers()
    return Placement(placer.refs, buffers, placer.slots, gather_steps, copies)


def log_sum(loss: int) -> Ref:
    """Return the column of the logarithm of a loss's sum of exponentials."""
    return Ref(BufferName(Role.LOG_SUM, str(loss)), 0, 1)


@dataclass(slots=True)
class Placer:
    """Columns of the nodes that are placed so far, and their buffers.

    Attributes:
        slots: For each state, the slots that are read.
    """

    uses: Uses
    refs: dict[int, Ref] = field(default_factory=dict)
    buffers: dict[BufferName, Buffer] = field(default_factory=dict)
    slots: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def place_alone(self, i: int, name: BufferName | None = None) -> None:
        """Place a node in its own buffer."""
        node = self.uses.nodes[i]
        memory = MemoryKind.SCRATCH if name is None else MemoryKind.GRADIENT
        name = name or BufferName(Role.NODE, str(i))
        self.buffers[name] = Buffer(name, memory, node.width, node.domain)
        self.refs[i] = Ref(name, 0, node.width)

    def _place_view(self, i: int) -> None:
        """Place a slice in the columns of its base, unless it is placed already."""
        if i not in self.refs:
            node = self.uses.nodes[i]
            base = node.inputs[0]
            self._place_view(base)
            self.refs[i] = self.refs[base].slice_columns(node.index, node.width)

    def place_state_gradients(self) -> None:
        """Place the gradients of the vertex's own states, to which its parents have added."""
        for i, node in enumerate(self.uses.nodes):
            if node.op == "state_gradient":
                self.place_alone(i, name_gradient_buffer(node.name))

    # --- children's states: copied to adjacent columns, or read in place ---

    def place_gathers(self) -> tuple[GatherStep, ...]:
        """Create one buffer per state whose gathers need a copy or are multiplied in place.

        Returns:
            The gathers that copy.
        """
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
                self._place_gather(
                    i, step, MemoryKind.SAVED if key in copied else MemoryKind.CHILDREN
                )
        return tuple(steps.values())

    def _place_gather(self, i: int, step: GatherStep, memory: MemoryKind) -> None:
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
            and not self._can_multiply_in_place(k, i)
            for k in uses.consumers[i]
        )

    def _is_multiplied(self, i: int) -> bool:
        return any(self._can_multiply_in_place(k, i) for k in self.uses.consumers[i])

    def _can_multiply_in_place(self, k: int, i: int) -> bool:
        """Return whether k multiplies a child's matrix i in place, one vertex after the other.

        Only small parameters qualify. A large one would be rearranged for every vertex, and the
        copies of a gather are cheap compared with that.
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

    # --- columns that a layout of the vertex function, states or concatenations determine ---

    def place_in_areas(self, columns: Mapping[int, Place]) -> None:
        """Create one buffer for every area, and place the nodes in it that are not merged."""
        into, after = self.uses.absorption.into, self.uses.absorption.after
        merged = {*into, *(into[product] for product in after)}
        for i, (area, start) in columns.items():
            if i in self.uses.stage_of and i not in merged:
                name, node = BufferName(Role.AREA, area), self.uses.nodes[i]
                width = self.buffers[name].width if name in self.buffers else 0
                width = max(width, start + node.width)
                self.buffers[name] = Buffer(name, MemoryKind.SCRATCH, width, node.domain)
                self.refs[i] = Ref(name, start, node.width)

    def place_states(self) -> tuple[CopyStep, ...]:
        """Place scattered values in their state rows.

        Returns:
            Copies of values that are gathered, sliced, eager or scattered twice.
        """
        copies: list[CopyStep] = []
        for state, i in self.uses.function.scatter:
            row = Ref(name_state_buffer(state), 0, self.uses.nodes[i].width)
            self.buffers[row.buffer] = Buffer(row.buffer, MemoryKind.STATE, row.width, "vertex")
            if self.uses.stage_of.get(i) == "batch" and i not in self.refs:
                self.refs[i] = row
            else:
                self.place_value(i)
                copies.append(CopyStep(self.refs[i], row))
        return tuple(copies)

    def place_concatenations(self) -> None:
        """Place all concatenations that have no columns yet, outer ones before inner ones."""
        for i in reversed(range(len(self.uses.nodes))):
            is_computed = self.uses.nodes[i].op == "concat" and i in self.uses.stage_of
            if is_computed and i not in self.refs:
                self._place_concatenation(i)

    def _place_concatenation(self, i: int) -> None:
        """Place a concatenation where its parts already are adjacent, or in its own buffer.

        In its own buffer, the parts of the same stage that have no columns yet are computed in
        place.
        """
        uses, parts = self.uses, self.uses.nodes[i].inputs
        joined = self._find_adjacent_columns(parts)
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
                self.refs[part] = self.refs[i].slice_columns(start, width)
            start += width

    def _find_adjacent_columns(self, parts: tuple[int, ...]) -> Ref | None:
        """Return the columns that these values fill if they are already adjacent, else None."""
        whole: Ref | None = None
        for part in parts:
            ref = self._find_settled_columns(part)
            if ref is None or (whole is not None and ref != whole.take_next(ref.width)):
                return None
            whole = ref if whole is None else whole.extend(ref.width)
        return whole

    def _find_settled_columns(self, i: int) -> Ref | None:
        """Return the columns of a gathered value or one in an area, or of a slice of the latter."""
        node = self.uses.nodes[i]
        if node.op == "slice" and i not in self.refs:
            base = self._find_settled_columns(node.inputs[0])
            in_area = base is not None and base.buffer.role is Role.AREA
            return base.slice_columns(node.index, node.width) if base and in_area else None
        ref = self.refs.get(i)
        return ref if ref is not None and ref.buffer.role in SHARED else None

    def _is_kernel_operand(self, i: int) -> bool:
        """Return whether an elementwise kernel reads i.

        Such kernels read the state of one child only.
        """
        return any(
            self._is_kernel_operand(k) if self.uses.is_slice(k) else self.uses.is_elementwise(k)
            for k in self.uses.consumers[i]
        )

    # --- everything else: in the memory of another value if possible ---

    def place_the_rest(self) -> None:
        """Place loss gradients, stored values, slices of placed values, and log-sums of losses."""
        uses, gradients = self.uses, self.uses.loss_gradients
        for i in range(len(uses.nodes)):
            if i in gradients:
                self.refs[i] = self.refs[gradients[i]]
            elif i in uses.stage_of and uses.is_stored(i):
                self.place_value(i)
        for i in range(len(uses.nodes)):
            if uses.is_slice(i) and uses.find_root(i) in self.refs:
                self._place_view(i)
        for loss in uses.losses:
            name = log_sum(loss).buffer
            self.buffers[name] = Buffer(name, MemoryKind.SAVED, 1, uses.nodes[loss].domain)

    def place_value(self, i: int) -> None:
        """Place a node in the memory of another node if possible, else in its own buffer."""
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
        """Return the value that a matmul adds to in order to compute sum i, or None."""
        absorption = self.uses.absorption
        return next((to for k, to in absorption.after.items() if absorption.into[k] == i), None)

    def _place_over_operand(self, i: int) -> bool:
        """Place a node over an operand of its group whose memory is free after the group.

        A group reads and writes column by column. If another operand overlaps the result at shifted
        columns, the group would read overwritten values.

        Returns:
            Whether there is such an operand.
        """
        uses = self.uses
        if not uses.is_elementwise(i) or i in uses.absorption.merged:
            return False
        group = uses.group_of[i]
        taken = {ref for k, ref in self.refs.items() if k in group}
        operands = [k for member in group for k in uses.nodes[member].inputs]
        read = {ref for k in operands if (ref := self._find_columns(k)) is not None}
        for operand in operands:
            root = uses.find_root(operand)
            if root not in self.refs or uses.stage_of.get(root) != uses.stage_of[i]:
                continue
            self._place_view(operand)
            ref = self.refs[operand]
            fits = ref not in taken and ref.width == uses.nodes[i].width
            shifted = any(ref.has_overlap(other) and ref != other for other in read)
            if fits and not shifted and self._is_free_after(operand, group):
                self.refs[i] = ref
                return True
        return False

    def _find_columns(self, i: int) -> Ref | None:
        """Return the columns of a value if they are known, also through slices, else None."""
        if i in self.refs or not self.uses.is_slice(i):
            return self.refs.get(i)
        node = self.uses.nodes[i]
        whole = self._find_columns(node.inputs[0])
        return None if whole is None else whole.slice_columns(node.index, node.width)

    def _is_free_after(self, operand: int, group: Group) -> bool:
        """Return whether a placed operand's columns have no reader after this group."""
        uses, ref, root = self.uses, self.refs[operand], self.uses.find_root(operand)
        if self.buffers[ref.buffer].memory not in (MemoryKind.SCRATCH, MemoryKind.SAVED):
            return False
        if ref.buffer.is_gathered or root in group:
            return False
        if root in uses.function.shown or root in uses.absorption.into:
            return False
        others = [k for k, other in self.refs.items() if ref.has_overlap(other)]
        return all(
            self._is_last_read_in(k, group) for k in others
        ) and self._are_slices_last_read_in(root, group)

    def _is_last_read_in(self, i: int, group: Group) -> bool:
        """Return whether a group is the last to read a value, apart from slices of it."""
        readers = [k for k in self.uses.consumers[i] if not self.uses.is_slice(k)]
        return i not in self.uses.kept and all(k in group for k in readers)

    def _are_slices_last_read_in(self, root: int, group: Group) -> bool:
        """Return whether a group is the last to read a value and its slices, placed or not."""
        uses = self.uses
        slices = [k for k in uses.consumers[root] if uses.is_slice(k)]
        own = [k for k in uses.consumers[root] if not uses.is_slice(k)]
        readers = [*own, *(reader for k in slices for reader in uses.consumers[k])]
        return all(k not in uses.kept for k in slices) and all(k in group for k in readers)

    def settle_buffers(self) -> dict[BufferName, Buffer]:
        """Return the buffers; those read in a later stage than they are written in are SAVED."""
        saved = {ref.buffer for i, ref in self.refs.items() if self._is_read_after_stage(i)}
        return {
            name: replace(buffer, memory=MemoryKind.SAVED)
            if name in saved and buffer.memory is MemoryKind.SCRATCH
            else buffer
            for name, buffer in self.buffers.items()
        }

    def _is_read_after_stage(self, i: int) -> bool:
        if i in self.uses.function.shown:  # also a slice, which has no stage
            return True
        if i not in self.uses.stage_of:
            return False
        stage = self.uses.stage_of[i]
        return stage in WHOLE_STAGES or self._is_read_elsewhere(i, stage)

    def _is_read_elsewhere(self, i: int, stage: str) -> bool:
        """Return whether a later stage reads i; the update reads a sparse gradient."""
        uses = self.uses
        return any(
            self._is_read_elsewhere(k, stage)
            if uses.is_slice(k)
            else uses.stage_of.get(k, stage) != stage or uses.nodes[k].op == "row_sum"
            for k in uses.consumers[i]
        )
