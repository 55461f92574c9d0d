"""Where every value of a program lives.

A scattered value is computed in its state row; gathered slots lie side by side; the parts of a
concatenation are computed inside it; a slice is a view; an elementwise result takes the place of an
operand that dies. Inside a fused group a value that nobody else reads has no place at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.engine.lowering.abilities import Abilities
from harness.engine.lowering.absorption import Absorption, find_consumers
from harness.engine.lowering.areas import place_in_areas, side_by_side
from harness.engine.lowering.plan import (
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
from harness.engine.lowering.staging import Staging
from harness.vertex.autodiff import Gradient
from harness.vertex.operators import OPERATORS, Node
from harness.vertex.program import VertexFunction
from harness.vertex.subgraph.columns import Place

WHOLE_STAGES = ("eager", "lazy", "backward_lazy")


class Placement:
    """Buffers and refs of one program; see the module's docstring.

    orders: per stage the groups of nodes in order of execution (groups of one without fusion).
    columns: where a layout wants values to lie.
    """

    def __init__(
        self,
        function: VertexFunction,
        gradient: Gradient | None,
        nodes: tuple[Node, ...],
        staging: Staging,
        orders: Mapping[str, Sequence[tuple[int, ...]]],
        absorption: Absorption,
        columns: Mapping[int, Place],
        abilities: Abilities,
    ) -> None:
        self.function, self.gradient, self.nodes = function, gradient, nodes
        self.abilities, self.absorption = abilities, absorption
        self.stage_of = staging.stage_of()
        self._pinned = {i for i in (function.push, function.loss) if i is not None}
        self._scattered = {i for _, i in function.scatter}
        self._given_back = {i for _, i in gradient.gathers} if gradient is not None else set()
        results = {*self.stage_of, *self._pinned, *self._scattered, *self._given_back}
        self.consumers = find_consumers(nodes, results)
        self.group_of = {i: group for order in orders.values() for group in order for i in group}
        self.buffers: dict[BufferName, Buffer] = {}
        self.refs: dict[int, Ref] = {}
        self.slots: dict[str, tuple[int, ...]] = {}
        self.gather_steps: list[GatherStep] = []
        self.state_copies: list[CopyStep] = []
        self.fused_adds: dict[int, list[tuple[str, int | None]]] = {}
        self._place_gathers()
        self._find_fused_adds()
        self._place_in_areas(columns)
        self._place_states()
        self._place_concatenations()
        self._place_the_rest()
        self._settle_memory()

    def ref(self, i: int) -> Ref:
        """Columns that hold node i."""
        return self.refs[i]

    def added_on_the_spot(self, group: tuple[int, ...]) -> tuple[tuple[int, str, int | None], ...]:
        """Results of a fused group that are added to children's gradients by its kernel."""
        return tuple((i, *target) for i in group for target in self.fused_adds.get(i, []))

    # --- gathers ---

    def _place_gathers(self) -> None:
        for i, node in enumerate(self.nodes):
            if node.op == "gather":
                slots = {*self.slots.get(node.name, ()), node.index}
                self.slots[node.name] = tuple(sorted(slots))
            if node.op == "state_gradient":
                self.refs[i] = self._buffer(gradient_buffer(node.name), node, Memory.GRADIENT)
        copied: dict[str, set[str]] = {}
        for i, node in enumerate(self.nodes):
            if node.op in ("gather", "gather_each") and self._needs_copy(i):
                copied.setdefault(node.name, set()).add(node.op)
        for i, node in enumerate(self.nodes):
            if node.op in copied.get(node.name, ()) and node.op in ("gather", "gather_each"):
                self._place_gather(i, node)

    def _needs_copy(self, i: int) -> bool:
        if i in self._pinned or i in self._scattered:
            return True
        if not self.consumers[i]:
            return False
        return not self.abilities.reads_children or any(
            not OPERATORS[self.nodes[k].op].elementwise and self.nodes[k].op != "sum_edges"
            for k in self.consumers[i]
        )

    def _place_gather(self, i: int, node: Node) -> None:
        slots = self.slots[node.name] if node.op == "gather" else None
        n_slots = len(slots) if slots is not None else 1
        name = BufferName(Role(node.op), node.name)
        if name not in self.buffers:
            self.buffers[name] = Buffer(name, Memory.SAVED, n_slots * node.width, node.domain)
            self.gather_steps.append(GatherStep(name, node.name, slots))
        column = slots.index(node.index) * node.width if slots is not None else 0
        self.refs[i] = Ref(name, column, node.width)

    def _find_fused_adds(self) -> None:
        if self.gradient is None or not self.abilities.adds_to_children:
            return
        for source, i in self.gradient.gathers:
            fusible = OPERATORS[self.nodes[i].op].elementwise and i not in self.absorption.merged
            if fusible and i in self.stage_of:
                gather = self.nodes[source]
                slot = gather.index if gather.op == "gather" else None
                self.fused_adds.setdefault(i, []).append((gather.name, slot))

    def _place_in_areas(self, columns: Mapping[int, Place]) -> None:
        """Of what a layout has columns for, place what is not merged with others."""
        grown = {self.absorption.into[product] for product in self.absorption.after}
        merged = {*self.absorption.into, *grown}
        wanted = {i: at for i, at in columns.items() if i in self.stage_of and i not in merged}
        refs, buffers = place_in_areas(self.nodes, wanted)
        self.refs |= refs
        self.buffers |= buffers

    # --- states and concatenations ---

    def _place_states(self) -> None:
        for state, i in self.function.scatter:
            ref = Ref(state_buffer(state), 0, self.nodes[i].width)
            self.buffers[ref.buffer] = Buffer(ref.buffer, Memory.STATE, ref.width, "vertex")
            if i in self.stage_of and self.stage_of[i] == "batch" and i not in self.refs:
                self.refs[i] = ref
            else:
                self.state_copies.append(CopyStep(self._computed(i), ref))

    def _computed(self, i: int) -> Ref:
        """Place of a value copied to its state: gathered, sliced, eager, or scattered twice."""
        return self.refs[i] if i in self.refs else self._place(i)

    def _place_concatenations(self) -> None:
        for i in reversed(range(len(self.nodes))):
            if self.nodes[i].op != "concat" or i not in self.stage_of or i in self.refs:
                continue
            parts = self.nodes[i].inputs
            joined = side_by_side(self.nodes, self.refs, parts)
            in_gather = joined is not None and joined.buffer.is_gathered
            if joined is not None and not (in_gather and self._is_kernel_operand(i)):
                self.refs[i] = joined
                continue
            whole = self._own_buffer(i)
            self.refs[i] = whole
            start = 0
            for part in parts:
                width = self.nodes[part].width
                same_stage = self.stage_of.get(part) == self.stage_of[i]
                if part not in self.refs and same_stage and not self._is_alias(part):
                    self.refs[part] = whole.columns(start, width)
                start += width

    def _is_kernel_operand(self, i: int) -> bool:
        """Whether a kernel reads i, which takes one child's state at a time only."""
        return any(
            self._is_kernel_operand(k)
            if self.nodes[k].op == "slice"
            else OPERATORS[self.nodes[k].op].elementwise
            for k in self.consumers[i]
        )

    def _is_alias(self, i: int) -> bool:
        return self.nodes[i].op == "slice" or i in self.absorption.after.values()

    # --- everything else ---

    def _place_the_rest(self) -> None:
        for i in range(len(self.nodes)):
            if i in self.stage_of and self._is_stored(i):
                self._place(i)
        for i, node in enumerate(self.nodes):
            if node.op == "slice" and i not in self.refs and self._root(i) in self.refs:
                self._place(i)

    def _root(self, i: int) -> int:
        while self.nodes[i].op == "slice":
            i = self.nodes[i].inputs[0]
        return i

    def _place(self, i: int) -> Ref:
        if i in self.refs:
            return self.refs[i]
        node = self.nodes[i]
        if node.op == "slice":
            self.refs[i] = self._place(node.inputs[0]).columns(node.index, node.width)
            return self.refs[i]
        targets = [
            target
            for product, target in self.absorption.after.items()
            if self.absorption.into[product] == i
        ]
        if targets:
            self.refs[i] = self._place(targets[0])
        else:
            self.refs[i] = self._dying_operand(i) or self._own_buffer(i)
        return self.refs[i]

    def _is_stored(self, i: int) -> bool:
        if OPERATORS[self.nodes[i].op].sink:
            return False
        if i in self.absorption.into:
            return False
        if (
            i in self._pinned
            or not self.abilities.fuses
            or not OPERATORS[self.nodes[i].op].elementwise
        ):
            return True
        group = self.group_of[i]
        return any(k not in group for k in self.consumers[i]) or self._is_plain_gradient(i)

    def _is_plain_gradient(self, i: int) -> bool:
        return i in self._given_back and i not in self.fused_adds

    def _is_kept(self, i: int) -> bool:
        """Whether a value is read after its stage's operators: shown, scattered, given back."""
        return i in self._scattered or i in self._pinned or self._is_plain_gradient(i)

    def _dying_operand(self, i: int) -> Ref | None:
        """An operand of i's group whose place is free once the group has run."""
        if not OPERATORS[self.nodes[i].op].elementwise or i in self.absorption.merged:
            return None
        group = self.group_of[i]
        taken = {ref for k, ref in self.refs.items() if k in group}
        for member in group:
            for operand in self.nodes[member].inputs:
                root = self._root(operand)
                if root not in self.refs or self.stage_of.get(root) != self.stage_of[i]:
                    continue
                ref = self._place(operand)
                free = self.buffers[ref.buffer].memory in (Memory.SCRATCH, Memory.SAVED)
                if (
                    free
                    and ref not in taken
                    and ref.width == self.nodes[i].width
                    and root not in self._pinned
                    and root not in group
                    and not ref.buffer.is_gathered
                    and self._dies_in(root, operand, group)
                ):
                    return ref
        return None

    def _dies_in(self, root: int, operand: int, group: tuple[int, ...]) -> bool:
        """Whether the columns of `operand` inside `root` have no reader outside the group."""
        if root in self.absorption.into:
            return False
        low = self.refs[operand].start
        high = low + self.refs[operand].width
        for other, ref in self.refs.items():
            readers = [k for k in self.consumers[other] if self.nodes[k].op != "slice"]
            overlaps = ref.buffer == self.refs[operand].buffer and not (
                ref.start + ref.width <= low or high <= ref.start
            )
            if overlaps and (self._is_kept(other) or any(k not in group for k in readers)):
                return False
        return self._unplaced_slices_die(root, group)

    def _unplaced_slices_die(self, root: int, group: tuple[int, ...]) -> bool:
        for k in self.consumers[root]:
            if self.nodes[k].op == "slice":
                if self._is_kept(k) or not all(reader in group for reader in self.consumers[k]):
                    return False
            elif k not in group:
                return False
        return True

    def _own_buffer(self, i: int) -> Ref:
        return self._buffer(BufferName(Role.NODE, str(i)), self.nodes[i], Memory.SCRATCH)

    def _buffer(self, name: BufferName, node: Node, memory: Memory) -> Ref:
        self.buffers[name] = Buffer(name, memory, node.width, node.domain)
        return Ref(name, 0, node.width)

    def _settle_memory(self) -> None:
        """Buffers read in another stage than they are written in keep their rows."""
        for i, ref in self.refs.items():
            buffer = self.buffers[ref.buffer]
            if buffer.memory is not Memory.SCRATCH or i not in self.stage_of:
                continue
            stage = self.stage_of[i]
            if stage in WHOLE_STAGES or i in self._pinned or self._read_elsewhere(i, stage):
                self.buffers[ref.buffer] = Buffer(
                    buffer.name, Memory.SAVED, buffer.width, buffer.domain
                )

    def _read_elsewhere(self, i: int, stage: str) -> bool:
        """Whether a later stage reads i; a sparse gradient is read as late as in the update."""
        return any(
            self._read_elsewhere(k, stage)
            if self.nodes[k].op == "slice"
            else self.stage_of.get(k, stage) != stage or self.nodes[k].op == "row_sum"
            for k in self.consumers[i]
        )
