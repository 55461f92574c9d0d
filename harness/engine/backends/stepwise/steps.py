"""Execution of one vertex function's plan with PyTorch, on CPU or CUDA, without autograd.

Every step is a closure over preallocated memory. Its argument, a `Scope`, selects the rows: those
of one batch, or all rows of the type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dynbatch.harness.compiler.pointers import FLOAT_BYTES
from dynbatch.harness.engine.backends.stepwise.kernels import KERNELS, multiply, multiply_rows
from dynbatch.harness.engine.backends.stepwise.rows import Bound, Matrix, Run, Scope
from dynbatch.harness.engine.lowering.plan import (
    STAGES,
    CopyStep,
    ElementwiseStep,
    GatherStep,
    MatmulStep,
    MemoryKind,
    OperatorStep,
    PackStep,
    Ref,
    ScatterAddStep,
    SinkStep,
    Step,
    count_slots,
    name_gradient_buffer,
    name_state_buffer,
)
from dynbatch.harness.engine.rows.fields import NOT_CONTIGUOUS


def compile_product(bound: Bound, step: MatmulStep) -> Run:
    x, out = bound.view(step.x), bound.view(step.out)
    weight = bound.parameters.values[step.parameter]
    turned = weight.t() if step.transposed else weight
    bias = None if step.bias is None else bound.parameters.values[step.bias]
    tally, accumulate = bound.tally, step.accumulate
    if step.x.width != len(turned):  # one matrix per vertex

        def run_rows(s: Scope) -> None:
            tally.n_launches += 1
            multiply_rows(x(s), turned, out(s), bias, accumulate=accumulate)

        return run_rows

    def run(s: Scope) -> None:
        tally.n_launches += 1
        if bias is not None:
            torch.addmm(bias, x(s), turned, out=out(s))
        else:
            multiply(x(s), turned, out(s), accumulate=accumulate)

    return run


def compile_operator(bound: Bound, i: int) -> Run:
    node = bound.plan.nodes[i]
    if node.op in ("spread", "sum_edges"):
        return compile_edge_operator(bound, i)
    operands = [bound.view_operand(k) for k in node.inputs]
    out, tally = bound.view(bound.plan.refs[i]), bound.tally
    kernel = KERNELS[node.op]

    def run(s: Scope) -> None:
        tally.n_launches += 1
        kernel(node, [operand(s) for operand in operands], out(s))

    return run


def compile_parameter_gradient(bound: Bound, step: SinkStep) -> Run:
    node = bound.plan.nodes[step.node]
    operands = [bound.view_operand(k) for k in node.inputs]
    sums: dict[str, Callable[..., None]] = {
        "outer_sum": bound.parameters.add_outer,
        "vertex_sum": bound.parameters.add_sum,
        "row_sum": bound.parameters.add_rows,
    }
    add = sums[node.op]

    def run(s: Scope) -> None:
        bound.tally.n_launches += 1
        add(node.name, *(operand(s) for operand in operands))

    return run


def compile_gather(bound: Bound, step: GatherStep) -> Run:
    matrix = bound.find_matrix(step.buffer)
    states = bound.shared
    name, width = name_state_buffer(step.state), matrix.width

    def run(s: Scope) -> None:
        if bound.find_first_row(step.slots, s) == NOT_CONTIGUOUS:
            bound.copy_rows(step.slots, states[name], matrix, s)

    if name not in states:
        states[name] = Matrix(width // count_slots(step.slots), bound.device)
    return run


def compile_scatter_add(bound: Bound, step: ScatterAddStep) -> Run:
    source_view = bound.view(step.source)
    source = bound.find_matrix(step.source.buffer)
    slots = None if step.slots is None else bound.plan.slots[step.state]
    stride = count_slots(slots)
    at = 0 if slots is None or step.slots is None else slots.index(step.slots[0])
    every_slot = step.slots == slots
    n_parts = stride if every_slot else 1

    def run(s: Scope) -> None:
        target = bound.shared[name_gradient_buffer(step.state)]
        start, end = (s.edge_start, s.edge_end) if slots is None else (s.start, s.end)
        first = bound.find_first_row(slots, s)
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
        if source is target:  # a state that is passed on: torch refuses to add a tensor to itself
            values = values.clone()
        target.tensor.index_add_(0, index, values)

    return run


def compile_copy(bound: Bound, step: CopyStep) -> Run:
    source, out, tally = bound.view(step.source), bound.view(step.out), bound.tally

    def run(s: Scope) -> None:
        tally.n_launches += 1
        tally.bytes_copied += out(s).copy_(source(s)).numel() * FLOAT_BYTES

    return run


def compile_pack(bound: Bound, step: PackStep) -> Run:
    tally, name = bound.tally, step.pack.name

    def run(s: Scope) -> None:
        tally.n_launches += 1
        tally.bytes_copied += bound.parameters.values[name].numel() * FLOAT_BYTES
        bound.parameters.refresh_pack(name)

    return run


def compile_edge_operator(bound: Bound, i: int) -> Run:
    node = bound.plan.nodes[i]
    operand, out = bound.view_operand(node.inputs[0]), bound.view(bound.plan.refs[i])

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


COMPILE: dict[type[Step], Callable[[Bound, Any], Run]] = {
    GatherStep: compile_gather,
    ScatterAddStep: compile_scatter_add,
    CopyStep: compile_copy,
    PackStep: compile_pack,
    MatmulStep: compile_product,
    SinkStep: compile_parameter_gradient,
    OperatorStep: lambda bound, step: compile_operator(bound, step.node),
    ElementwiseStep: lambda bound, step: compile_operator(bound, *step.nodes),
}


class TypeExecutor:
    """All steps of one plan, compiled once to closures.

    Attributes:
        bound: The memory and the mini-batch on which the steps work.
    """

    def __init__(self, bound: Bound) -> None:
        self.plan, self.bound = bound.plan, bound
        self.stages = {
            stage: [self._compile(step) for step in self.plan.steps[stage]] for stage in STAGES
        }
        self.touches_states = {stage: self.plan.has_state_access(stage) for stage in STAGES}

    def run_batch(self, stage: str, batch: int) -> None:
        """Run a stage over the rows of one batch."""
        scope = self.bound.scopes[batch]
        for step in self.stages[stage]:
            step(scope)

    def run_all(self, stage: str) -> None:
        """Run a stage once over all rows, or batch by batch if their states are not contiguous."""
        geometry = self.bound.geometry
        if self.touches_states[stage] and not geometry.contiguous:
            for batch in range(len(geometry.first_row)):
                self.run_batch(stage, batch)
            return
        scope = self.bound.select_all_rows()
        for step in self.stages[stage]:
            step(scope)

    def collect_value(self, ref: Ref) -> Tensor:
        """Return columns of all rows, in the order of the batches."""
        geometry = self.bound.geometry
        view = self.bound.view(ref)
        in_states = self.plan.buffers[ref.buffer].memory in (MemoryKind.STATE, MemoryKind.GRADIENT)
        if in_states and not geometry.contiguous:
            return torch.cat([view(scope) for scope in self.bound.scopes])
        return view(self.bound.select_all_rows())

    def _compile(self, step: Step) -> Run:
        if type(step) not in COMPILE:
            raise TypeError(f"this backend does not support {type(step).__name__}")
        return COMPILE[type(step)](self.bound, step)
