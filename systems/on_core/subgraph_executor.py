"""Runs a block for many instances: one operator a batch, and copies where the plan has them.

Values lie in one arena in the plan's order, each with all its instances; an operand that is one
piece of it is read in place. Everything is float32 and allocated beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness.vertex.subgraph.plan import FLOAT_BYTES, BlockPlan, Copy
from systems.on_core.subgraph_kernels import Array, Run, kernel


class BlockExecutor:
    """One block with memory for n instances.

    parameters: by name. ahead_of_time: where operands lie and which are copied is decided once;
    otherwise on every call, as in DyNet. n_copies, bytes_copied: of the last call, as
    BlockPlan.bytes_copied counts.
    """

    def __init__(
        self,
        plan: BlockPlan,
        parameters: Mapping[str, Array],
        n_instances: int,
        *,
        ahead_of_time: bool,
    ) -> None:
        self.plan, self.n = plan, n_instances
        self.n_copies = self.bytes_copied = 0
        nodes = plan.block.nodes
        self.given = {  # inputs and parameters, each as an operand of one operator
            i: np.array(parameters[nodes[i].name], dtype=np.float32)[None]
            if plan.block.is_parameter(i)
            else np.zeros((1, n_instances, *nodes[i].shape), dtype=np.float32)
            for i in plan.given()
        }
        n_elements = sum(nodes[i].width for i in plan.layout.order)
        self.arena = np.zeros(n_elements * n_instances, dtype=np.float32)
        self.copied = {copy: self._room(copy) for copy in plan.gathers}
        steps = _Steps(self, plan)
        for copy in set(plan.gathers) - set(plan.copies):
            steps.copy(copy)()
        self.steps = steps.all() if ahead_of_time else None

    def place(self, inputs: Mapping[int, Array]) -> None:
        """Take the values of the block's inputs, by node id, (n, ...) each."""
        for i, value in self.given.items():
            if not self.plan.block.is_parameter(i):
                np.copyto(value, inputs[i].reshape(value.shape))

    def run(self) -> None:
        """Compute all values."""
        self.n_copies = self.bytes_copied = 0
        for step in self.steps if self.steps is not None else self._decided_anew():
            step()

    def value(self, i: int) -> Array:
        """A value, (n, ...): a view of where it lies."""
        value: Array = _Steps(self, self.plan).piece((i,))[0]
        return value

    def _decided_anew(self) -> list[Run]:
        """Steps from a plan that has forgotten all that was found out about it."""
        return _Steps(self, replace(self.plan, layout=replace(self.plan.layout))).all()

    def _room(self, copy: Copy) -> Array:
        shape: tuple[int, ...] = self.plan.block.nodes[copy.values[0]].shape
        if not copy.of_parameters:
            shape = (self.n, *shape)
        return np.empty((len(copy.values), *shape), dtype=np.float32)


class _Steps:
    """Finds operands in the executor's memory, and binds kernels to them."""

    def __init__(self, executor: BlockExecutor, plan: BlockPlan) -> None:
        self.executor, self.plan = executor, plan
        self.nodes = plan.block.nodes
        self.offsets: dict[int, int] = {}
        end = 0
        for i in plan.layout.order:
            self.offsets[i] = end
            end += self.nodes[i].width * executor.n

    def all(self) -> list[Run]:
        """The steps of a call: for every batch the copies of its operands, then its operator."""
        steps: list[Run] = []
        gathers = {(copy.batch, copy.operand): copy for copy in self.plan.gathers}
        for place, batch in enumerate(self.plan.layout.batches):
            operands = []
            for k, operand in enumerate(batch.operands):
                copy = gathers.get((place, k))
                operands.append(self.piece(operand) if copy is None else self.executor.copied[copy])
                if copy is not None and self.plan.is_repeated(copy):
                    steps.append(self.copy(copy))
            node, out = self.nodes[batch.members[0]], self.piece(batch.members)
            steps.append(kernel(node, operands, out))
        return steps

    def piece(self, operand: Sequence[int]) -> Array:
        """Values that lie one behind the other, (m, n, ...); or one that all m share, (1, ...)."""
        first = operand[0]
        if first in self.executor.given:
            return self.executor.given[first]
        shape = (len(operand), self.executor.n, *self.nodes[first].shape)
        start = self.offsets[first]
        size = len(operand) * self.executor.n * self.nodes[first].width
        return self.executor.arena[start : start + size].reshape(shape)

    def copy(self, copy: Copy) -> Run:
        """Bring the values of an operand side by side, by one call."""
        executor = self.executor
        parts, out = [self.piece((i,)) for i in copy.values], executor.copied[copy]
        n_bytes = copy.n_elements * FLOAT_BYTES * executor.n

        def run() -> None:
            np.concatenate(parts, out=out)
            executor.n_copies += 1
            executor.bytes_copied += n_bytes

        return run
