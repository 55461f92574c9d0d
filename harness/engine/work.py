"""Work of a plan's steps: floating-point operations, and bytes read and written.

Operations: 2 k m per row for a matmul with a parameter (k, m); 1 per element for every elementwise
operator (also for tanh and exp) and every addition of a sum; 4 per element for a softmax with its
loss. Bytes: the float32 values that a step reads and writes, each counted once per step; a
parameter once per batch. Values that stay in a cache between steps are counted, too, so the traffic
of the main memory may be lower.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dynbatch.harness.compiler.pointers import FLOAT_BYTES
from dynbatch.harness.engine.backend import Arrangement
from dynbatch.harness.engine.lowering.plan import (
    BufferName,
    CopyStep,
    ElementwiseStep,
    GatherStep,
    MatmulStep,
    OperatorStep,
    PackStep,
    Plan,
    ScatterAddStep,
    SinkStep,
    SoftmaxLossStep,
    Step,
)
from dynbatch.harness.engine.rows.segments import ALL_ROWS
from dynbatch.harness.vertex.operators import EDGE, Node

OF_SOFTMAX = 4  # maximum, difference and its exponential, sum, quotient
OF_NORM = 6  # mean, difference, square, variance, two products
OF_OPERATOR = {
    **dict.fromkeys(("pick_neg_log_softmax", "softmax"), OF_SOFTMAX),
    **dict.fromkeys(("lookup", "spread", "expand"), 0),
    "layer_norm": OF_NORM,
}
MOVING = ("concat", "slice", "zeros", "ones")


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one step.

    Attributes:
        n_flop: Operations per row.
        n_bytes: Bytes per row.
        n_bytes_a_batch: Bytes per batch, independent of the number of its rows.
    """

    n_flop: int = 0
    n_bytes: int = 0
    n_bytes_a_batch: int = 0
    of_edges: bool = False


def compute_work(plan: Plan, step: Step) -> Work:
    """Compute the work of one step."""
    if isinstance(step, MatmulStep):
        return _compute_matmul_work(plan, step)
    if isinstance(step, SinkStep):
        return _compute_sum_work(plan, step)
    if isinstance(step, ElementwiseStep):
        return _compute_elementwise_work(plan, step)
    if isinstance(step, OperatorStep):
        return _compute_operator_work(plan, plan.nodes[step.node])
    if isinstance(step, SoftmaxLossStep):
        width = step.logits.width
        return Work(OF_SOFTMAX * width, FLOAT_BYTES * (2 * width + 2))
    if isinstance(step, PackStep):
        return Work()  # the matmul that reads these parameters counts them
    return _compute_movement_work(plan, step)


def _compute_matmul_work(plan: Plan, step: MatmulStep) -> Work:
    k, m = _find_factor_shape(plan, step)
    n_products = max(1, step.x.width // k)  # more than one if a row is a matrix
    n_values = step.x.width + step.out.width * (1 + step.accumulate)
    return Work(
        n_flop=2 * k * m * n_products,
        n_bytes=FLOAT_BYTES * n_values,
        n_bytes_a_batch=FLOAT_BYTES * k * m,
        of_edges=_is_of_edges(plan, step.x.buffer),
    )


def _find_factor_shape(plan: Plan, step: MatmulStep) -> tuple[int, int]:
    """Return the rows and columns of a matmul's second factor, after transposition."""
    for node in plan.nodes:
        if node.op == "parameter" and node.name == step.parameter and len(node.shape) == 2:
            k, m = node.shape
            return (m, k) if step.transposed else (k, m)
    return step.x.width, step.out.width  # joined parameters, for vectors


def _compute_sum_work(plan: Plan, step: SinkStep) -> Work:
    node = plan.nodes[step.node]
    inputs = [plan.nodes[i] for i in node.inputs]
    read = FLOAT_BYTES * sum(operand.width for operand in inputs if operand.op != "pull")
    of_edges = any(operand.domain == EDGE for operand in inputs)
    if node.op == "outer_sum":
        k, m = node.shape
        n_products = max(1, inputs[0].width // k)
        return Work(2 * k * m * n_products, read, 2 * FLOAT_BYTES * k * m, of_edges)
    if node.op == "row_sum":
        return Work(inputs[1].width, 3 * read, 0, of_edges)
    return Work(inputs[0].width, read, 2 * FLOAT_BYTES * node.width, of_edges)


def _compute_elementwise_work(plan: Plan, step: ElementwiseStep) -> Work:
    """Compute the work of a fused group, whose inner values stay in registers."""
    nodes = [plan.nodes[i] for i in step.nodes]
    read = dict.fromkeys(k for node in nodes for k in node.inputs if k not in step.nodes)
    n_read = sum(_count_read_columns(plan.nodes[k]) for k in read)
    n_written = sum(plan.nodes[i].width for i in step.nodes if i in plan.refs)
    n_added = sum(plan.nodes[i].width for i, _, _ in step.added_to)
    n_flop = sum(node.width * max(1, len(node.inputs) - 1) for node in nodes) + n_added
    n_bytes = FLOAT_BYTES * (n_read + n_written + 2 * n_added)
    return Work(n_flop, n_bytes, 0, any(node.domain == EDGE for node in nodes))


def _count_read_columns(node: Node) -> int:
    return 0 if node.op in ("parameter", "pull", "zeros", "ones") else node.width


def _compute_operator_work(plan: Plan, node: Node) -> Work:
    """Compute the work of any other operator: one operation for each element that it reads."""
    inputs = [plan.nodes[i] for i in node.inputs]
    n_read = sum(map(_count_read_columns, inputs))
    n_looked_up = node.width if node.op == "lookup" else 0
    each = 0 if node.op in MOVING else OF_OPERATOR.get(node.op, 1)
    n_flop = each * n_read
    if node.op in ("apply", "apply_transposed", "outer"):  # with a matrix of the vertex
        n_flop = 2 * max(node.width, *(operand.width for operand in inputs))
    elif node.op == "score_heads":
        n_flop = 2 * inputs[0].width * inputs[1].shape[0]
    elif node.op == "mix_heads":  # a head's weights multiply its own columns only
        n_flop = 2 * inputs[0].width * inputs[1].shape[1] // node.index
    of_edges = node.domain == EDGE or any(operand.domain == EDGE for operand in inputs)
    return Work(n_flop, FLOAT_BYTES * (n_read + n_looked_up + node.width), 0, of_edges)


def _compute_movement_work(plan: Plan, step: GatherStep | CopyStep | ScatterAddStep) -> Work:
    if isinstance(step, GatherStep):
        width, of_edges = plan.buffers[step.buffer].width, step.slots is None
        return Work(0, 2 * FLOAT_BYTES * width, 0, of_edges)
    width = step.source.width
    of_edges = _is_of_edges(plan, step.source.buffer)
    if isinstance(step, CopyStep):
        return Work(0, 2 * FLOAT_BYTES * width, 0, of_edges)
    return Work(width, 3 * FLOAT_BYTES * width, 0, of_edges)


def _is_of_edges(plan: Plan, name: BufferName) -> bool:
    return plan.buffers[name].domain == EDGE


@dataclass(frozen=True, slots=True)
class TotalWork:
    """Floating-point operations, and bytes that steps read and write (see the module)."""

    n_flop: int
    n_bytes: int


def compute_arranged_work(plans: Mapping[int, Plan], rows: Arrangement) -> TotalWork:
    """Compute the work of forward and backward of an arrangement, without the update of weights."""
    n_flop = n_bytes = 0
    for stage, batches in (*rows.forward, *rows.backward):
        for type_id, (n_rows, n_edges, n_batches) in _group_by_type(rows, batches.tolist()).items():
            for step in plans[type_id].steps[stage]:
                work = compute_work(plans[type_id], step)
                n = n_edges if work.of_edges else n_rows
                n_flop += n * work.n_flop
                n_bytes += n * work.n_bytes + n_batches * work.n_bytes_a_batch
    return TotalWork(n_flop, n_bytes)


def _group_by_type(rows: Arrangement, batches: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """Return the rows, edges and batches of each function in these batches, by id."""
    totals: dict[int, list[int]] = {}
    for type_id, position in batches:
        mine = totals.setdefault(type_id, [0, 0, 0])
        for k, n in enumerate((*_count_rows_and_edges(rows, type_id, position), 1)):
            mine[k] += n
    return totals


def _count_rows_and_edges(rows: Arrangement, type_id: int, position: int) -> tuple[int, int]:
    geometry = rows.types[type_id]
    if position == ALL_ROWS:
        return geometry.n_rows, geometry.n_edges
    start, end = geometry.starts[position : position + 2].tolist()
    if not geometry.n_edges:
        return end - start, 0
    edge_start = geometry.gathers[None].edge_start
    return end - start, int(edge_start[end] - edge_start[start])
