"""Reads of values by the steps of a plan, and overlaps of what they read and write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dynbatch.harness.engine.lowering.plan import (
    STAGES,
    CopyStep,
    ElementwiseStep,
    MatmulStep,
    OperatorStep,
    Plan,
    Ref,
    ScatterAddStep,
    SinkStep,
    SoftmaxLossStep,
    Step,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Columns that a step reads from memory.

    Attributes:
        alone: whether the step reads position by position, so that constants need no memory.
    """

    stage: str
    step_index: int
    ref: Ref
    alone: bool


def list_readings(plan: Plan) -> list[Reading]:
    """Return all columns that the steps of a plan read."""
    return [
        Reading(stage, index, ref, isinstance(step, ElementwiseStep))
        for stage in STAGES
        for index, step in enumerate(plan.list_steps(stage))
        for ref in _list_reads(plan, step)
    ]


def _list_reads(plan: Plan, step: Step) -> Iterator[Ref]:
    nodes: tuple[int, ...] = ()
    if isinstance(step, ElementwiseStep):
        nodes = tuple(k for i in step.nodes for k in plan.nodes[i].inputs if k not in step.nodes)
    elif isinstance(step, OperatorStep | SinkStep):
        nodes = plan.nodes[step.node].inputs
    elif isinstance(step, MatmulStep):
        yield step.x
        if step.accumulate:
            yield step.out
    elif isinstance(step, CopyStep | ScatterAddStep):
        yield step.source
    elif isinstance(step, SoftmaxLossStep):
        yield step.logits
    yield from (plan.refs[k] for k in nodes if k in plan.refs)


def list_shown_refs(plan: Plan) -> list[Ref]:
    """Return the values that are read after all stages: pushed values and the loss."""
    shown = (*plan.pushes, *(() if plan.loss is None else (plan.loss,)))
    return [plan.refs[k] for k in shown if k in plan.refs]


def overlap(ref: Ref, other: Ref) -> bool:
    """Return whether two refs have columns in common."""
    apart = ref.start + ref.width <= other.start or other.start + other.width <= ref.start
    return ref.buffer == other.buffer and not apart


def is_inside(ref: Ref, other: Ref) -> bool:
    """Return whether all columns of one ref are columns of the other."""
    starts = other.start <= ref.start
    return ref.buffer == other.buffer and starts and find_end(ref) <= find_end(other)


def find_end(ref: Ref) -> int:
    """Return the first column after a reference."""
    return ref.start + ref.width
