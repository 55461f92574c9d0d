"""Groups of elementwise operators as instructions of a kernel of their own.

A group reads children's states by index (no gather), evaluates in registers, writes each value that
somebody else needs, and adds gradients straight to the children's rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.engine.backends.compiled.instructions import (
    FLOAT_BYTES,
    Instruction,
    Operand,
    count_register,
)
from harness.engine.backends.compiled.places import Places
from harness.engine.cpu_kernels.elementwise import Group, RowKind, Store
from harness.engine.cpu_kernels.vectors import LANES
from harness.engine.lowering.plan import ElementwiseStep, Operation, Ref, Role

Place = tuple[int, int]  # a row and a column, by their numbers


def write_group(places: Places, step: ElementwiseStep) -> Instruction:
    """Return the instruction of a group."""
    return _GroupWriter(places, step).write()


@dataclass(slots=True)
class _GroupWriter:
    """rows: operands of distinct rows, and how each follows on. columns: distinct offsets."""

    places: Places
    step: ElementwiseStep
    rows: dict[tuple[Operand, ...], RowKind] = field(default_factory=dict)
    columns: dict[int, int] = field(default_factory=dict)
    loads: dict[Place, int] = field(default_factory=dict)

    def write(self) -> Instruction:
        nodes, group = self.places.plan.nodes, self.step.nodes
        number = {i: f"v{k}" for k, i in enumerate(group)}
        operations, stores = list[Operation](), list[Store]()
        for i in group:
            node = nodes[i]
            operands = tuple(
                number[k] if k in number else f"x{self._load(k, node.index)}" for k in node.inputs
            )
            operations.append(Operation(number[i], node.op, operands, node.value))
            if i in self.places.plan.refs:
                row, column = self._place(self.places.plan.refs[i])
                stores.append(Store(row, column, number[i]))
        for i, state, slot in self.step.added_to:
            row, column = self._child(state, slot, 0, gradient=True)
            stores.append(Store(row, column, number[i], adds=True))
        first = nodes[group[0]]
        kinds = tuple(self.rows.values())
        period = first.shape[-1]
        is_periodic = len(first.shape) > 1 and RowKind.SAME in kinds
        inner = period if is_periodic else first.width
        kernel = Group(
            kinds, tuple(self.loads), tuple(operations), tuple(stores), len(self.columns),
            ragged=inner % LANES != 0, periodic=is_periodic,
        )  # fmt: skip
        sizes = (first.width, period) if is_periodic else (first.width,)
        return Instruction(
            kernel,
            tuple(operand for operands in self.rows for operand in operands),
            (*sizes, *self.columns),
            count_register(first.domain),
        )

    def _load(self, i: int, index: int) -> int:
        """The number of an input: of a node, at a parameter's element `index`."""
        node, ref = self.places.plan.nodes[i], self.places.plan.refs.get(i)
        if ref is not None:
            place = self._place(ref)
        elif node.op == "parameter":
            place = self._at((self.places.parameter(node.name),), RowKind.SAME, index)
        else:
            place = self._child(node.name, node.index if node.op == "gather" else None, 0)
        return self.loads.setdefault(place, len(self.loads))

    def _place(self, ref: Ref) -> Place:
        """Where a value lies; of what is gathered the child itself, where it is one child's."""
        plan = self.places.plan
        if not ref.buffer.is_gathered:
            whole = Ref(ref.buffer, 0, 0)
            return self._at((self.places.operand(whole),), RowKind.STRIDED, ref.start)
        if ref.buffer.role is Role.GATHER_EACH:
            return self._child(ref.buffer.of, None, ref.start)
        slots = plan.slots[ref.buffer.of]
        slot, column = divmod(ref.start, plan.buffers[ref.buffer].width // len(slots))
        if column + ref.width > plan.buffers[ref.buffer].width // len(slots):
            return self._at((self.places.operand(ref),), RowKind.STRIDED, 0)
        return self._child(ref.buffer.of, slots[slot], column)

    def _child(self, state: str, slot: int | None, column: int, *, gradient: bool = False) -> Place:
        slots = None if slot is None else self.places.plan.slots[state]
        at = 0 if slots is None or slot is None else slots.index(slot)
        operands = self.places.child(state, slots, at, gradient=gradient)
        return self._at(operands, RowKind.INDEXED, column)

    def _at(self, operands: tuple[Operand, ...], kind: RowKind, column: int) -> Place:
        self.rows.setdefault(operands, kind)
        self.columns.setdefault(FLOAT_BYTES * column, len(self.columns))
        return list(self.rows).index(operands), self.columns[FLOAT_BYTES * column]
