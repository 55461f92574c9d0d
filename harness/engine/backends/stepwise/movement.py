"""Steps that move rows: gathers, scatters of gradients, copies, and between vertices and their
edges.
"""

from __future__ import annotations

from harness.compiler.pointers import FLOAT_BYTES
from harness.engine.backends.stepwise.bound import Bound, Run, Scope
from harness.engine.backends.stepwise.workspace import Matrix
from harness.engine.lowering.plan import (
    CopyStep,
    GatherStep,
    PackStep,
    ScatterAddStep,
    gradient_buffer,
    state_buffer,
)
from harness.engine.rows.geometry import NOT_CONTIGUOUS


def gather(bound: Bound, step: GatherStep) -> Run:
    matrix = bound.space.matrix(step.buffer)
    states = bound.space.shared
    name, width = state_buffer(step.state), matrix.width

    def run(s: Scope) -> None:
        if bound.first_row(step.slots, s) == NOT_CONTIGUOUS:
            bound.copy_rows(step.slots, states[name], matrix, s)

    if name not in states:
        states[name] = Matrix(width // len(step.slots or (0,)), bound.device)
    return run


def add_to_children(bound: Bound, step: ScatterAddStep) -> Run:
    source_view = bound.view(step.source)
    source = bound.space.matrix(step.source.buffer)
    slots = None if step.slots is None else bound.plan.slots[step.state]
    stride = 1 if slots is None else len(slots)
    at = 0 if slots is None or step.slots is None else slots.index(step.slots[0])
    every_slot = step.slots == slots
    n_parts = stride if every_slot else 1

    def run(s: Scope) -> None:
        target = bound.space.shared[gradient_buffer(step.state)]
        start, end = (s.edge_start, s.edge_end) if slots is None else (s.start, s.end)
        first = bound.first_row(slots, s)
        n = end - start
        bound.tally.n_launches += 1
        if first != NOT_CONTIGUOUS and every_slot:
            rows = target.tensor[first : first + n * stride]
            rows.view(n, stride * target.width).add_(source_view(s))
            return
        bound.tally.bytes_copied += n * n_parts * target.width * FLOAT_BYTES
        index = bound.indices.gathers[slots][start * stride : end * stride]
        index = index if every_slot else index[at::stride]
        values = source_view(s).reshape(n * n_parts, target.width)
        if source is target:  # a state passed on: torch refuses to add a tensor to itself
            values = values.clone()
        target.tensor.index_add_(0, index, values)

    return run


def copy(bound: Bound, step: CopyStep) -> Run:
    source, out, tally = bound.view(step.source), bound.view(step.out), bound.tally

    def run(s: Scope) -> None:
        tally.n_launches += 1
        tally.bytes_copied += out(s).copy_(source(s)).numel() * FLOAT_BYTES

    return run


def pack(bound: Bound, step: PackStep) -> Run:
    tally, name = bound.tally, step.pack.name

    def run(s: Scope) -> None:
        tally.n_launches += 1
        tally.bytes_copied += bound.parameters.values[name].numel() * FLOAT_BYTES
        bound.parameters.renew(name)

    return run


def between_edges_and_vertices(bound: Bound, i: int) -> Run:
    node = bound.plan.nodes[i]
    operand, out = bound.operand(node.inputs[0]), bound.view(bound.plan.refs[i])

    def run(s: Scope) -> None:
        bound.tally.n_launches += 1
        indices = bound.indices
        owners = indices.owner if s.batch < 0 else indices.owner_in_batch
        assert owners is not None
        owner = owners[s.edge_start : s.edge_end]
        if node.op == "spread":
            out(s).copy_(operand(s)[owner])
        else:
            out(s).zero_().index_add_(0, owner, operand(s))

    return run
