"""Steps that compute: products, operators, parameter gradients."""

from __future__ import annotations

from collections.abc import Callable

import torch

from harness.engine.backends.stepwise.bound import Bound, Run, Scope
from harness.engine.backends.stepwise.kernels import KERNELS
from harness.engine.backends.stepwise.movement import between_edges_and_vertices
from harness.engine.backends.stepwise.products import multiply, multiply_rows
from harness.engine.lowering.plan import MatmulStep, SinkStep


def product(bound: Bound, step: MatmulStep) -> Run:
    x, out = bound.view(step.x), bound.view(step.out)
    weight = bound.parameters.values[step.parameter]
    turned = weight.t() if step.transposed else weight
    bias = None if step.bias is None else bound.parameters.values[step.bias]
    tally, accumulate = bound.tally, step.accumulate
    if step.x.width != len(turned):  # a matrix a vertex

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


def operator(bound: Bound, i: int) -> Run:
    node = bound.plan.nodes[i]
    if node.op in ("spread", "sum_edges"):
        return between_edges_and_vertices(bound, i)
    operands = [bound.operand(k) for k in node.inputs]
    out, tally = bound.view(bound.plan.refs[i]), bound.tally
    kernel = KERNELS[node.op]

    def run(s: Scope) -> None:
        tally.n_launches += 1
        kernel(node, [operand(s) for operand in operands], out(s))

    return run


def parameter_gradient(bound: Bound, step: SinkStep) -> Run:
    node = bound.plan.nodes[step.node]
    operands = [bound.operand(k) for k in node.inputs]
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
