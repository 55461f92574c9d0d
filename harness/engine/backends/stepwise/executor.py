"""Executes one vertex function's plan with torch, on CPU or CUDA, without autograd.

Every step is a closure over preallocated memory; a `Scope` tells it which rows to work on: those
of one batch, or all of the type's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from harness.contracts.timeline import Part
from harness.engine.backend import Tally
from harness.engine.backends.stepwise import arithmetic, movement
from harness.engine.backends.stepwise.bound import Bound, Run, Scope
from harness.engine.backends.stepwise.indices import TypeIndices
from harness.engine.backends.stepwise.parameters import Parameters
from harness.engine.backends.stepwise.workspace import Matrix
from harness.engine.lowering.plan import (
    STAGES,
    BufferName,
    CopyStep,
    ElementwiseStep,
    GatherStep,
    MatmulStep,
    Memory,
    OperatorStep,
    PackStep,
    Plan,
    Ref,
    ScatterAddStep,
    SinkStep,
    Step,
)
from harness.engine.rows.geometry import TypeGeometry
from harness.engine.work import words_of


class TypeExecutor:
    """All steps of one plan, compiled once; `bind` sets the mini-batch they work on."""

    def __init__(
        self,
        plan: Plan,
        parameters: Parameters,
        shared: dict[BufferName, Matrix],
        device: torch.device,
        tally: Tally,
    ) -> None:
        self.plan = plan
        self.bound = Bound(plan, parameters, shared, device, tally)
        self.stages = {
            stage: [self._compile(step) for step in plan.steps(stage)] for stage in STAGES
        }
        self.touches_states = {stage: plan.addresses_states(stage) for stage in STAGES}

    def bind(self, geometry: TypeGeometry, indices: TypeIndices) -> None:
        """Take a mini-batch's rows."""
        self.bound.bind(geometry, indices)

    def run_batch(self, stage: str, batch: int) -> None:
        """Run a stage over the rows of one batch."""
        scope = self.bound.scopes[batch]
        for step in self.stages[stage]:
            step(scope)

    def run_all(self, stage: str) -> None:
        """Run a stage once over all rows; batch by batch where their states are not contiguous."""
        geometry = self.bound.geometry
        if not self.stages[stage] or geometry.rows.n == 0:
            return
        if self.touches_states[stage] and not geometry.contiguous:
            for batch in range(len(geometry.rows.first_row)):
                self.run_batch(stage, batch)
            return
        scope = self.bound.all_rows()
        for step in self.stages[stage]:
            step(scope)

    @contextmanager
    def in_parts(self, part: Part) -> Iterator[None]:
        """Have every step be a part of a timeline meanwhile."""
        plain = self.stages
        self.stages = {
            stage: [
                _as_part(part, words_of(self.plan, step), run)
                for step, run in zip(self.plan.steps(stage), runs, strict=True)
            ]
            for stage, runs in plain.items()
        }
        try:
            yield
        finally:
            self.stages = plain

    def value(self, ref: Ref) -> Tensor:
        """Columns of all rows, in the order of the batches."""
        geometry = self.bound.geometry
        view = self.bound.view(ref)
        in_states = self.plan.buffers[ref.buffer].memory in (Memory.STATE, Memory.GRADIENT)
        if in_states and not geometry.contiguous:
            return torch.cat([view(scope) for scope in self.bound.scopes])
        return view(self.bound.all_rows())

    def _compile(self, step: Step) -> Run:
        if isinstance(step, GatherStep):
            return movement.gather(self.bound, step)
        if isinstance(step, ScatterAddStep):
            return movement.add_to_children(self.bound, step)
        if isinstance(step, CopyStep):
            return movement.copy(self.bound, step)
        if isinstance(step, PackStep):
            return movement.pack(self.bound, step)
        if isinstance(step, MatmulStep):
            return arithmetic.product(self.bound, step)
        if isinstance(step, SinkStep):
            return arithmetic.parameter_gradient(self.bound, step)
        if isinstance(step, OperatorStep):
            return arithmetic.operator(self.bound, step.node)
        if isinstance(step, ElementwiseStep):
            (node,) = step.nodes
            return arithmetic.operator(self.bound, node)
        raise TypeError(f"{type(step).__name__} needs an ability that this backend has not")


def _as_part(part: Part, name: str, run: Run) -> Run:
    def run_in_part(scope: Scope) -> None:
        with part("kernel", name, {}):
            run(scope)

    return run_in_part
