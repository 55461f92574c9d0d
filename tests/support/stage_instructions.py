"""Instructions that the CPU backend generates for the vertex functions of a model."""

from __future__ import annotations

from collections.abc import Iterator

from dynbatch.harness.contracts.model import Model, trace_functions
from dynbatch.harness.engine.backends.compiled.arguments import Instruction
from dynbatch.harness.engine.backends.compiled.backend import Backend
from dynbatch.harness.engine.backends.compiled.steps import StageWriter
from dynbatch.harness.engine.lowering.lower import lower
from dynbatch.harness.engine.lowering.plan import STAGES
from dynbatch.harness.engine.switches import Switches


def instructions_of(
    model: Model, switches: Switches | None = None
) -> Iterator[tuple[str, Instruction]]:
    """Yield all instructions, each with its stage."""
    for type_id, function in enumerate(trace_functions(model).values(), 1):
        plan = lower(function, switches or Switches(), Backend.abilities, train=True)
        shapes = {name: one.shape for name, one in model.parameters.items()}
        shapes |= {node.name: node.shape for node in plan.nodes if node.op == "parameter"}
        for stage in STAGES:
            for one in StageWriter(type_id, plan, stage, shapes, has_own_kernels=False).write():
                yield stage, one
