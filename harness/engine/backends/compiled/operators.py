"""The operators of a vertex function that are no elementwise arithmetic, as instructions."""

from __future__ import annotations

from typing import Any

from harness.compiler.compiled import Compiled
from harness.engine.backends.compiled.instructions import (
    FLOAT_BYTES,
    Instruction,
    Operand,
    count_register,
)
from harness.engine.backends.compiled.places import Places
from harness.engine.cpu_kernels import loss_kernels, row_kernels
from harness.engine.cpu_kernels.elementwise import OPERATORS as ELEMENTWISE
from harness.engine.cpu_kernels.elementwise import WITH_CONSTANT
from harness.engine.cpu_kernels.product_kernels import apply_children
from harness.engine.lowering.placement import APPLIED
from harness.engine.lowering.plan import Memory
from harness.vertex.operators import Node

# Kernels that take the rows of the operands and of the result, and the width of the first.
BY_WIDTH: dict[str, Compiled[..., Any]] = {
    "pick_neg_log_softmax": loss_kernels.pick_neg_log_softmax,
    "softmax_minus_one_hot": loss_kernels.softmax_minus_one_hot,
    "sum_elements": row_kernels.sum_elements,
}
# The same with the widths of two.
BY_WIDTHS: dict[str, Compiled[..., Any]] = {
    "apply": row_kernels.apply,
    "apply_transposed": row_kernels.apply_transposed,
    "outer": row_kernels.outer,
}
OF_HEADS = {"score_heads": loss_kernels.score_heads, "mix_heads": loss_kernels.mix_heads}
CONSTANTS = {"zeros": 0, "ones": 1}
OTHERS = ("expand", "layer_norm", "softmax", "lookup", "sum_edges", "spread")
OTHER_STEPS = (
    *("gather", "gather_each", "pull", "parameter", "state_gradient", "slice", "concat"),
    *("matmul", "matmul_transposed", "outer_sum", "vertex_sum", "row_sum"),
)
OPERATORS = frozenset(
    (*ELEMENTWISE, *WITH_CONSTANT, *BY_WIDTH, *BY_WIDTHS, *OF_HEADS, *CONSTANTS, *OTHERS,
     *OTHER_STEPS)
)  # fmt: skip


def write_operator(places: Places, i: int) -> Instruction:
    """Return the instruction of node i."""
    node, nodes = places.plan.nodes[i], places.plan.nodes
    out = places.operand(places.plan.refs[i])
    count = count_register(node.domain)
    if node.op in APPLIED and _is_in_place(places, node.inputs[1]):
        return _apply_in_place(places, node, out)
    if node.op in CONSTANTS:
        constants = node.width, CONSTANTS[node.op]
        return Instruction(row_kernels.fill, (out,), constants, count, moves=True)
    if node.op in BY_WIDTH:
        operands = *(_operand(places, k) for k in node.inputs), out
        return Instruction(BY_WIDTH[node.op], operands, (nodes[node.inputs[0]].width,), count)
    if node.op in BY_WIDTHS:
        left, right = node.inputs
        second = nodes[right].width if node.op == "outer" else node.width
        operands = _operand(places, left), _operand(places, right), out
        constants = nodes[left].width, second
        return Instruction(BY_WIDTHS[node.op], operands, constants, count)
    if node.op in OF_HEADS:
        return _of_heads(places, i, out)
    if node.op == "lookup":
        table, rows = (nodes[k].name for k in node.inputs)
        width = FLOAT_BYTES * node.width
        operands = places.parameter(table), places.pulled(rows), out
        return Instruction(row_kernels.look_up, operands, (width,), count, moves=True)
    if node.op == "sum_edges":
        return _sum_edges(places, node, out)
    return _other(places, node, out)


def _other(places: Places, node: Node, out: Operand) -> Instruction:
    count = count_register(node.domain)
    x = _operand(places, node.inputs[0])
    if node.op == "expand":
        return Instruction(row_kernels.expand, (x, out), (node.width,), count)
    if node.op == "softmax":
        width = node.shape[-1]
        return Instruction(loss_kernels.softmax, (x, out), (width, node.width // width), count)
    if node.op == "layer_norm":
        gain = node.inputs[1]
        width = places.plan.nodes[gain].width
        operands = x, _operand(places, gain), out
        return Instruction(loss_kernels.layer_norm, operands, (width, node.width // width), count)
    if node.op == "spread":  # the rows of vertices to those of edges
        operands = x, places.edges(), out
        return Instruction(row_kernels.spread, operands, (FLOAT_BYTES * node.width,), moves=True)
    raise TypeError(f"{node.op} is no operator of a step")


def _operand(places: Places, i: int) -> Operand:
    """The rows of a node, what is pulled for them, or a parameter."""
    node = places.plan.nodes[i]
    if node.op == "parameter":
        return places.parameter(node.name)
    if node.op == "pull":
        return places.pulled(node.name)
    return places.operand(places.plan.refs[i])


def _is_in_place(places: Places, i: int) -> bool:
    ref = places.plan.refs.get(i)
    return ref is not None and places.buffer(ref).memory is Memory.CHILDREN


def _apply_in_place(places: Places, node: Node, out: Operand) -> Instruction:
    """Row times a child's matrix, which lies in the child's row."""
    row, matrix = node.inputs
    states, index = places.row_operands(places.plan.refs[matrix])
    rows, columns = places.plan.nodes[matrix].shape
    operands = places.operand(places.plan.refs[row]), states, index, out
    constants = rows, columns, int(node.op == "apply_transposed")
    return Instruction(apply_children, operands, constants, count_register(node.domain))


def _of_heads(places: Places, i: int, out: Operand) -> Instruction:
    """Products of two values; see cpu_kernels.loss_kernels."""
    node, nodes = places.plan.nodes[i], places.plan.nodes
    left, right = node.inputs
    scores, rows = (i, left) if node.op == "score_heads" else (left, i)
    n_rows, width = nodes[rows].shape
    constants = node.index, n_rows, nodes[scores].shape[1], width
    operands = _operand(places, left), _operand(places, right), out
    return Instruction(OF_HEADS[node.op], operands, constants, count_register(node.domain))


def _sum_edges(places: Places, node: Node, out: Operand) -> Instruction:
    (operand,) = node.inputs
    if operand in places.plan.refs:
        values = places.operand(places.plan.refs[operand])
        return Instruction(row_kernels.sum_edges, (values, places.edges(), out), (node.width,))
    states, _ = places.child(places.plan.nodes[operand].name, None, 0)
    operands = states, Operand(places.index(None)), places.edges(), out
    return Instruction(row_kernels.sum_children, operands, (node.width,))
