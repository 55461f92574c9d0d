"""Executes one vertex function's plan with torch, on CPU or CUDA, without autograd.

Every step is a closure over preallocated memory; a `Scope` tells it which rows to work on: those
of one batch, or all of the type's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.engine.backends.stepwise import arithmetic, movement
from harness.engine.lowering.plan import (
    CopyStep,
    ElementwiseStep,
    GatherStep,
    MatmulStep,
    Memory,
    OperatorStep,
    PackStep,
    Plan,
    ScatterAddStep,
    SinkStep,
    Step,
)
from harness.engine.memory.bound import Bound, Run, Tally
from harness.engine.memory.parameters import Parameters
from harness.engine.memory.workspace import Matrix
from harness.engine.rows.geometry import TypeGeometry

STAGES = ("eager", "batch", "lazy", "backward", "backward_lazy")


class TypeExecutor:
    """All steps of one plan, compiled once; `bind` sets the mini-batch they work on."""

    def __init__(
        self,
        plan: Plan,
        parameters: Parameters,
        shared: dict[str, Matrix],
        device: torch.device,
        tally: Tally,
    ) -> None:
        self.plan = plan
        self.bound = Bound(plan, parameters, shared, device, tally)
        self.stages = {
            stage: [self._compile(step) for step in getattr(plan, stage)] for stage in STAGES
        }
        self.touches_states = {
            stage: any(self._addresses_states(step) for step in getattr(plan, stage))
            for stage in STAGES
        }

    def bind(self, geometry: TypeGeometry) -> None:
        """Take a mini-batch's rows."""
        self.bound.bind(geometry)

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

    def value(self, node: int | None) -> Tensor | None:
        """All rows of a pushed value or loss."""
        if node is None:
            return None
        return self.bound.view(self.plan.refs[node])(self.bound.all_rows())

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
        if len(step.nodes) > 1 or self._only_fused(step):
            return arithmetic.fused(self.bound, step)
        return arithmetic.operator(self.bound, step.nodes[0])

    def _only_fused(self, step: ElementwiseStep) -> bool:
        """Whether a single operator reads children directly or adds to them, as only kernels
        can.
        """
        i = step.nodes[0]
        direct = any(
            self.plan.nodes[k].op != "parameter" and k not in self.plan.refs
            for k in self.plan.nodes[i].inputs
        )
        return direct or bool(step.added_to)

    def _addresses_states(self, step: Step) -> bool:
        """Whether a step addresses state rows, which must be contiguous to be taken as a whole."""
        nodes: Sequence[int] = ()
        if isinstance(step, ElementwiseStep):
            nodes = step.nodes
        elif isinstance(step, OperatorStep | SinkStep):
            nodes = (step.node,)
        refs = [self.plan.refs.get(k) for i in nodes for k in (i, *self.plan.nodes[i].inputs)]
        if isinstance(step, MatmulStep):
            refs = [step.x, step.out]
        elif isinstance(step, CopyStep):
            refs = [step.source, step.out]
        return any(
            ref is not None
            and self.plan.buffers[ref.buffer].memory in (Memory.STATE, Memory.GRADIENT)
            for ref in refs
        )
