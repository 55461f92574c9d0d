"""Instructions of operators, and their operands, for one vertex function.

A group of elementwise operators is a generated kernel. It reads children's states by index (without
a gather), evaluates in registers, writes the values that other kernels read, and adds gradients
directly to the children's rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dynbatch.harness.compiler.compiled import Compiled
from dynbatch.harness.compiler.pointers import FLOAT_BYTES
from dynbatch.harness.engine.backends.compiled.arguments import (
    INDEX_BYTES,
    Argument,
    ArgumentKind,
    Instruction,
    Operand,
    Run,
    select_count_register,
)
from dynbatch.harness.engine.cpu_kernels import loss_kernels, row_kernels
from dynbatch.harness.engine.cpu_kernels.context import Register
from dynbatch.harness.engine.cpu_kernels.elementwise import OPERATORS as ELEMENTWISE
from dynbatch.harness.engine.cpu_kernels.elementwise import (
    WITH_CONSTANT,
    ColumnStore,
    Group,
    RowKind,
)
from dynbatch.harness.engine.cpu_kernels.product_kernels import apply_children
from dynbatch.harness.engine.cpu_kernels.vectors import LANES
from dynbatch.harness.engine.lowering.placement import APPLIED
from dynbatch.harness.engine.lowering.plan import (
    OPERATORS_OF_STEPS,
    SHARED,
    Buffer,
    BufferName,
    ElementwiseStep,
    MemoryKind,
    Operation,
    Plan,
    Ref,
    Role,
    Slots,
    count_slots,
    name_gradient_buffer,
    name_state_buffer,
)
from dynbatch.harness.vertex.operators import EDGE, Node, Shape


@dataclass(frozen=True, slots=True)
class OperandFactory:
    """Operands of one vertex function."""

    type_id: int
    plan: Plan
    shapes: Mapping[str, Shape]

    def make_buffer_argument(self, name: BufferName) -> Argument:
        """Return the array of a buffer."""
        return Argument(ArgumentKind.BUFFER, name, SHARED if name.is_shared else self.type_id)

    def find_buffer(self, ref: Ref) -> Buffer:
        """Return the buffer of a ref."""
        return self.plan.buffers[ref.buffer]

    def find_state_width(self, state: str) -> int:
        """Return the number of floats of a child's state."""
        return self.plan.read_states()[name_state_buffer(state)]

    def make_own_argument(self, kind: ArgumentKind, key: object = "") -> Argument:
        """Return an array of this function."""
        return Argument(kind, key, self.type_id)

    def make_index_operand(self, slots: Slots, slot: int = 0) -> Operand:
        """Return the rows of a batch's children.

        Args:
            slot: The position in `slots`.
        """
        n_slots = count_slots(slots)
        row = Register.EDGE_START if slots is None else Register.START
        return Operand(
            self.make_own_argument(ArgumentKind.INDEX, slots),
            row,
            INDEX_BYTES * n_slots,
            INDEX_BYTES * slot,
        )

    def make_edge_operand(self) -> Operand:
        """Return the first edge of each row."""
        return Operand(self.make_own_argument(ArgumentKind.EDGE_START), Register.START, INDEX_BYTES)

    def make_pull_operand(self, name: str) -> Operand:
        """Return the numbers that rows pull by this name."""
        return Operand(self.make_own_argument(ArgumentKind.PULL, name), Register.START, INDEX_BYTES)

    def make_parameter_operand(self, name: str) -> Operand:
        """Return a parameter."""
        return Operand(Argument(ArgumentKind.PARAMETER, name))

    def make_column_operand(self, name: str, row_width: int, start: int, width: int) -> Operand:
        """Return columns of a parameter's rows."""
        pitch, offset = FLOAT_BYTES * row_width, FLOAT_BYTES * start
        return Operand(
            Argument(ArgumentKind.PARAMETER, name),
            Register.ZERO,
            pitch,
            offset,
            FLOAT_BYTES * width,
        )

    def make_operand(self, ref: Ref) -> Operand:
        """Return the operand for the columns of a ref.

        Raises:
            ValueError: These are children's rows without copies.
        """
        buffer = self.find_buffer(ref)
        pitch, offset = FLOAT_BYTES * buffer.width, FLOAT_BYTES * ref.start
        width = FLOAT_BYTES * ref.width
        if not ref.buffer.is_gathered:
            return Operand(
                self.make_buffer_argument(ref.buffer),
                self._select_register(buffer),
                pitch,
                offset,
                width,
            )
        if buffer.memory is MemoryKind.CHILDREN:
            raise ValueError(f"{ref.buffer} has no memory; read its rows one by one")
        slots = self.plan.find_gathered_slots(ref.buffer)
        on_edges = slots is None
        run = Run(
            self.make_own_argument(ArgumentKind.RUNS, slots),
            self.make_buffer_argument(name_state_buffer(ref.buffer.of)),
            pitch // count_slots(slots),
            Register.EDGE_AT if on_edges else Register.AT,
        )
        row = Register.EDGE_START if on_edges else Register.START
        return Operand(self.make_buffer_argument(ref.buffer), row, pitch, offset, width, run)

    def _select_register(self, buffer: Buffer) -> Register:
        on_edges = buffer.domain == EDGE
        if buffer.memory is MemoryKind.SCRATCH:
            return Register.EDGE_AT if on_edges else Register.AT
        if buffer.memory is MemoryKind.SAVED:
            return Register.EDGE_START if on_edges else Register.START
        return Register.STATE_ROW

    def make_row_operands(self, ref: Ref) -> tuple[Operand, ...]:
        """Return the columns of a ref; for children's rows without copies also the row numbers."""
        if self.find_buffer(ref).memory is not MemoryKind.CHILDREN:
            return (self.make_operand(ref),)
        slots = self.plan.find_gathered_slots(ref.buffer)
        slot, column = divmod(ref.start, self.find_buffer(ref).width // count_slots(slots))
        return self.make_child_operands(ref.buffer.of, slots, slot, column)

    def make_child_operands(
        self, state: str, slots: Slots, slot: int, column: int = 0, *, gradient: bool = False
    ) -> tuple[Operand, Operand]:
        """Return columns of the children's state or its gradient, and the rows of the children."""
        name = name_gradient_buffer(state) if gradient else name_state_buffer(state)
        pitch, offset = FLOAT_BYTES * self.find_state_width(state), FLOAT_BYTES * column
        states = Operand(self.make_buffer_argument(name), Register.ZERO, pitch, offset)
        return states, self.make_index_operand(slots, slot)


Place = tuple[int, int]  # numbers of a row and of a column


@dataclass(slots=True)
class GroupWriter:
    """Writer of a group's kernel and instruction.

    Attributes:
        rows: Operands of distinct rows, and how each is addressed.
        columns: Distinct offsets in bytes.
        loads: Distinct inputs.
    """

    places: OperandFactory
    step: ElementwiseStep
    rows: dict[tuple[Operand, ...], RowKind] = field(default_factory=dict)
    columns: dict[int, int] = field(default_factory=dict)
    loads: dict[Place, int] = field(default_factory=dict)

    def write(self) -> Instruction:
        """Write the instruction."""
        nodes, group = self.places.plan.nodes, self.step.nodes
        number = {i: f"v{k}" for k, i in enumerate(group)}
        operations, stores = list[Operation](), list[ColumnStore]()
        for i in group:
            node = nodes[i]
            operands = tuple(
                number[k] if k in number else f"x{self._load(k, node.index)}" for k in node.inputs
            )
            operations.append(Operation(number[i], node.op, operands, node.value))
            if i in self.places.plan.refs:
                row, column = self._locate_value(self.places.plan.refs[i])
                stores.append(ColumnStore(row, column, number[i]))
        for i, state, slot in self.step.added_to:
            row, column = self._locate_child(state, slot, 0, gradient=True)
            stores.append(ColumnStore(row, column, number[i], adds=True))
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
            select_count_register(first.domain),
        )

    def _load(self, i: int, index: int) -> int:
        """Return the number of the input with node i's value.

        Args:
            index: The first element, if the node is a parameter.
        """
        node, ref = self.places.plan.nodes[i], self.places.plan.refs.get(i)
        if ref is not None:
            location = self._locate_value(ref)
        elif node.op == "parameter":
            location = self._number_location(
                (self.places.make_parameter_operand(node.name),), RowKind.SAME, index
            )
        else:
            location = self._locate_child(node.name, node.index if node.op == "gather" else None, 0)
        return self.loads.setdefault(location, len(self.loads))

    def _locate_value(self, ref: Ref) -> Place:
        """Return the row and column of a value; for one child's gathered state, in the child."""
        plan = self.places.plan
        if not ref.buffer.is_gathered:
            whole = Ref(ref.buffer, 0, 0)
            return self._number_location(
                (self.places.make_operand(whole),), RowKind.STRIDED, ref.start
            )
        if ref.buffer.role is Role.GATHER_EACH:
            return self._locate_child(ref.buffer.of, None, ref.start)
        slots = plan.slots[ref.buffer.of]
        slot, column = divmod(ref.start, plan.buffers[ref.buffer].width // len(slots))
        if column + ref.width > plan.buffers[ref.buffer].width // len(slots):
            return self._number_location((self.places.make_operand(ref),), RowKind.STRIDED, 0)
        return self._locate_child(ref.buffer.of, slots[slot], column)

    def _locate_child(
        self, state: str, slot: int | None, column: int, *, gradient: bool = False
    ) -> Place:
        slots = None if slot is None else self.places.plan.slots[state]
        at = 0 if slots is None or slot is None else slots.index(slot)
        operands = self.places.make_child_operands(state, slots, at, gradient=gradient)
        return self._number_location(operands, RowKind.INDEXED, column)

    def _number_location(self, operands: tuple[Operand, ...], kind: RowKind, column: int) -> Place:
        self.rows.setdefault(operands, kind)
        self.columns.setdefault(FLOAT_BYTES * column, len(self.columns))
        return list(self.rows).index(operands), self.columns[FLOAT_BYTES * column]


# Kernels with the rows of operands and result as operands, and the width of the first as constant.
BY_WIDTH: dict[str, Compiled[..., Any]] = {
    "pick_neg_log_softmax": loss_kernels.pick_neg_log_softmax,
    "softmax_minus_one_hot": loss_kernels.compute_softmax_gradient,
    "sum_elements": row_kernels.sum_elements,
}
# Kernels with the widths of two operands as constants.
BY_WIDTHS: dict[str, Compiled[..., Any]] = {
    "apply": row_kernels.apply,
    "apply_transposed": row_kernels.apply_transposed,
    "outer": row_kernels.compute_outer,
}
OF_HEADS = {"score_heads": loss_kernels.score_heads, "mix_heads": loss_kernels.mix_heads}
CONSTANTS = {"zeros": 0, "ones": 1}
OTHERS = ("expand", "layer_norm", "softmax", "lookup", "sum_edges", "spread")
OPERATORS = frozenset(
    (*OPERATORS_OF_STEPS, *ELEMENTWISE, *WITH_CONSTANT, *BY_WIDTH, *BY_WIDTHS, *OF_HEADS,
     *CONSTANTS, *OTHERS)
)  # fmt: skip


def write_operator(places: OperandFactory, i: int) -> Instruction:
    """Write the instruction of node i."""
    node, nodes = places.plan.nodes[i], places.plan.nodes
    out = places.make_operand(places.plan.refs[i])
    count = select_count_register(node.domain)
    if node.op in APPLIED and _is_in_place(places, node.inputs[1]):
        return _apply_in_place(places, node, out)
    if node.op in CONSTANTS:
        constants = node.width, CONSTANTS[node.op]
        return Instruction(row_kernels.fill, (out,), constants, count, moves=True)
    if node.op in BY_WIDTH:
        operands = *(_make_operand(places, k) for k in node.inputs), out
        return Instruction(BY_WIDTH[node.op], operands, (nodes[node.inputs[0]].width,), count)
    if node.op in BY_WIDTHS:
        left, right = node.inputs
        second = nodes[right].width if node.op == "outer" else node.width
        operands = _make_operand(places, left), _make_operand(places, right), out
        constants = nodes[left].width, second
        return Instruction(BY_WIDTHS[node.op], operands, constants, count)
    if node.op in OF_HEADS:
        return _write_heads(places, i, out)
    if node.op == "lookup":
        table, rows = (nodes[k].name for k in node.inputs)
        width = FLOAT_BYTES * node.width
        operands = places.make_parameter_operand(table), places.make_pull_operand(rows), out
        return Instruction(row_kernels.look_up, operands, (width,), count, moves=True)
    if node.op == "sum_edges":
        return _sum_edges(places, node, out)
    return _write_other(places, node, out)


def _write_other(places: OperandFactory, node: Node, out: Operand) -> Instruction:
    count = select_count_register(node.domain)
    x = _make_operand(places, node.inputs[0])
    if node.op == "expand":
        return Instruction(row_kernels.expand, (x, out), (node.width,), count)
    if node.op == "softmax":
        width = node.shape[-1]
        return Instruction(
            loss_kernels.compute_softmax, (x, out), (width, node.width // width), count
        )
    if node.op == "layer_norm":
        gain = node.inputs[1]
        width = places.plan.nodes[gain].width
        operands = x, _make_operand(places, gain), out
        return Instruction(
            loss_kernels.compute_layer_norm, operands, (width, node.width // width), count
        )
    if node.op == "spread":  # copies rows of vertices to those of edges
        operands = x, places.make_edge_operand(), out
        return Instruction(row_kernels.spread, operands, (FLOAT_BYTES * node.width,), moves=True)
    raise TypeError(f"unknown operator {node.op} in a step")


def _make_operand(places: OperandFactory, i: int) -> Operand:
    """Return the rows of a node, the numbers that it pulls, or a parameter."""
    node = places.plan.nodes[i]
    if node.op == "parameter":
        return places.make_parameter_operand(node.name)
    if node.op == "pull":
        return places.make_pull_operand(node.name)
    return places.make_operand(places.plan.refs[i])


def _is_in_place(places: OperandFactory, i: int) -> bool:
    ref = places.plan.refs.get(i)
    return ref is not None and places.find_buffer(ref).memory is MemoryKind.CHILDREN


def _apply_in_place(places: OperandFactory, node: Node, out: Operand) -> Instruction:
    """Return the instruction that multiplies each row by a child's matrix in place."""
    row, matrix = node.inputs
    states, index = places.make_row_operands(places.plan.refs[matrix])
    rows, columns = places.plan.nodes[matrix].shape
    operands = places.make_operand(places.plan.refs[row]), states, index, out
    constants = rows, columns, int(node.op == "apply_transposed")
    return Instruction(apply_children, operands, constants, select_count_register(node.domain))


def _write_heads(places: OperandFactory, i: int, out: Operand) -> Instruction:
    """Write the instruction of an attention matmul, see cpu_kernels.loss_kernels."""
    node, nodes = places.plan.nodes[i], places.plan.nodes
    left, right = node.inputs
    scores, rows = (i, left) if node.op == "score_heads" else (left, i)
    n_rows, width = nodes[rows].shape
    constants = node.index, n_rows, nodes[scores].shape[1], width
    operands = _make_operand(places, left), _make_operand(places, right), out
    return Instruction(OF_HEADS[node.op], operands, constants, select_count_register(node.domain))


def _sum_edges(places: OperandFactory, node: Node, out: Operand) -> Instruction:
    (operand,) = node.inputs
    if operand in places.plan.refs:
        values = places.make_operand(places.plan.refs[operand])
        return Instruction(
            row_kernels.sum_edges, (values, places.make_edge_operand(), out), (node.width,)
        )
    states, _ = places.make_child_operands(places.plan.nodes[operand].name, None, 0)
    operands = (
        states,
        Operand(places.make_own_argument(ArgumentKind.INDEX, None)),
        places.make_edge_operand(),
        out,
    )
    return Instruction(row_kernels.sum_children, operands, (node.width,))
