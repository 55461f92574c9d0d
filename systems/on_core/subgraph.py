"""A single cell with batched and laid-out operators: ED-Batch's static-subgraph ablation.

NumPy does the arithmetic, with one call per batch. The values are in one arena in the plan's order,
each with all its instances; an operand that is contiguous in the arena is read in place. All arrays
are float32 and allocated beforehand. Operands and results of a batch have the shape (m, n, ...): m
operators, n instances. Parameters have the shape (m, ...), or (1, ...) if all operators share one.

Source: Chen et al., "ED-Batch", ICML 2023, Table 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Model, Weights, trace_functions
from dynbatch.harness.contracts.system import (
    Clock,
    Counters,
    Parameters,
    Result,
    RunSettings,
    System,
)
from dynbatch.harness.engine.cpu_kernels.libraries import describe_numpy_blas
from dynbatch.harness.models.cell import CellModel
from dynbatch.harness.vertex.operators import Node
from dynbatch.harness.vertex.subgraph.block import OperatorBlock
from dynbatch.harness.vertex.subgraph.plan import FLOAT_BYTES, BlockPlan, Copy, plan_block
from dynbatch.systems.plans.programs import Once

Array = NDArray[np.float32]
Run = Callable[[], object]
HALF, ONE = np.float32(0.5), np.float32(1.0)


class BlockExecutor:
    """One block with memory for n instances.

    Args:
        plan: batches, layout and copies of the block.
        ahead_of_time: decide addresses and copies once; otherwise on every call, as in DyNet.

    Attributes:
        n_copies: number of copies of the last call.
        bytes_copied: copied bytes of the last call, counted as in BlockPlan.count_copied_bytes.
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
        self.given = {  # inputs and parameters, each shaped as the operand of a single operator
            i: np.array(parameters[nodes[i].name], dtype=np.float32)[None]
            if plan.block.is_parameter(i)
            else np.zeros((1, n_instances, *nodes[i].shape), dtype=np.float32)
            for i in plan.list_inputs()
        }
        n_elements = sum(nodes[i].width for i in plan.layout.order)
        self.arena = np.zeros(n_elements * n_instances, dtype=np.float32)
        self.copied = {copy: self._allocate_copy(copy) for copy in plan.gathers}
        steps = _Steps(self, plan)
        for copy in set(plan.gathers) - set(plan.copies):
            steps.copy(copy)()
        self.steps = steps.build_steps() if ahead_of_time else None

    def place(self, inputs: Mapping[int, Array]) -> None:
        """Copy the block's inputs into its memory.

        Args:
            inputs: values by node id, each (n, ...).
        """
        for i, value in self.given.items():
            if not self.plan.block.is_parameter(i):
                np.copyto(value, inputs[i].reshape(value.shape))

    def run(self) -> None:
        self.n_copies = self.bytes_copied = 0
        for step in self.steps if self.steps is not None else self._rebuild_steps():
            step()

    def read_value(self, i: int) -> Array:
        """Return a value, (n, ...), as a view into the arena."""
        value: Array = _Steps(self, self.plan).view_values((i,))[0]
        return value

    def _rebuild_steps(self) -> list[Run]:
        """Build all steps again, from a copy of the plan without its cached decisions."""
        return _Steps(self, replace(self.plan, layout=replace(self.plan.layout))).build_steps()

    def _allocate_copy(self, copy: Copy) -> Array:
        shape: tuple[int, ...] = self.plan.block.nodes[copy.values[0]].shape
        if not copy.of_parameters:
            shape = (self.n, *shape)
        return np.empty((len(copy.values), *shape), dtype=np.float32)


class _Steps:
    """Builder of steps: finds operands in the executor's memory and binds kernels to them."""

    def __init__(self, executor: BlockExecutor, plan: BlockPlan) -> None:
        self.executor, self.plan = executor, plan
        self.nodes = plan.block.nodes
        self.offsets: dict[int, int] = {}
        end = 0
        for i in plan.layout.order:
            self.offsets[i] = end
            end += self.nodes[i].width * executor.n

    def build_steps(self) -> list[Run]:
        """Return the steps of a call: for every batch, copies of operands and then the operator."""
        steps: list[Run] = []
        gathers = {(copy.batch, copy.operand): copy for copy in self.plan.gathers}
        for index, batch in enumerate(self.plan.layout.batches):
            operands = []
            for k, operand in enumerate(batch.operands):
                copy = gathers.get((index, k))
                operands.append(
                    self.view_values(operand) if copy is None else self.executor.copied[copy]
                )
                if copy is not None and self.plan.is_repeated(copy):
                    steps.append(self.copy(copy))
            node, out = self.nodes[batch.members[0]], self.view_values(batch.members)
            steps.append(bind_kernel(node, operands, out))
        return steps

    def view_values(self, operand: Sequence[int]) -> Array:
        """Return adjacent values, (m, n, ...), or one that all m operators share, (1, ...)."""
        first = operand[0]
        if first in self.executor.given:
            return self.executor.given[first]
        shape = (len(operand), self.executor.n, *self.nodes[first].shape)
        start = self.offsets[first]
        size = len(operand) * self.executor.n * self.nodes[first].width
        return self.executor.arena[start : start + size].reshape(shape)

    def copy(self, copy: Copy) -> Run:
        """Return a step that makes the values of an operand contiguous with one call."""
        executor = self.executor
        parts, out = [self.view_values((i,)) for i in copy.values], executor.copied[copy]
        n_bytes = copy.n_elements * FLOAT_BYTES * executor.n

        def run() -> None:
            np.concatenate(parts, out=out)
            executor.n_copies += 1
            executor.bytes_copied += n_bytes

        return run


def bind_kernel(node: Node, operands: Sequence[Array], out: Array) -> Run:
    """Return a function that computes one batched operator of the cells."""
    if node.op in PREPARED:
        return PREPARED[node.op](node, operands, out)
    ufunc = UFUNCS[node.op]
    return lambda: ufunc(*operands, out=out)


def _bind_sigmoid(node: Node, operands: Sequence[Array], out: Array) -> Run:
    (x,) = operands

    def run() -> None:
        np.multiply(x, HALF, out=out)
        np.tanh(out, out=out)
        np.add(out, ONE, out=out)
        np.multiply(out, HALF, out=out)

    return run


def _bind_matmul(node: Node, operands: Sequence[Array], out: Array) -> Run:
    """Bind one GEMM per matrix; matrix-valued operands are multiplied row by row."""
    x, weight = operands
    rows = x.reshape(len(weight), -1, x.shape[-1])
    result = out.reshape(len(weight), -1, out.shape[-1])
    if len(weight) == 1:
        rows, weight, result = rows[0], weight[0], result[0]
    return lambda: np.matmul(rows, weight, out=result)


def _bind_apply(node: Node, operands: Sequence[Array], out: Array) -> Run:
    x, matrix = operands
    rows, result = x[..., None, :], out[..., None, :]
    return lambda: np.matmul(rows, matrix, out=result)


def _bind_bias(node: Node, operands: Sequence[Array], out: Array) -> Run:
    x, bias = operands
    spread = bias.reshape(len(bias), *(1,) * (x.ndim - 2), bias.shape[-1])
    return lambda: np.add(x, spread, out=out)


def _bind_concat(node: Node, operands: Sequence[Array], out: Array) -> Run:
    parts = list(operands)
    return lambda: np.concatenate(parts, axis=-1, out=out)


def _make_scalar_binder(ufunc: np.ufunc) -> Callable[[Node, Sequence[Array], Array], Run]:
    def prepare(node: Node, operands: Sequence[Array], out: Array) -> Run:
        (x,), value = operands, np.float32(node.value)
        return lambda: ufunc(x, value, out=out)

    return prepare


UFUNCS: dict[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "neg": np.negative,
    "tanh": np.tanh,
}
PREPARED: dict[str, Callable[[Node, Sequence[Array], Array], Run]] = {
    "matmul": _bind_matmul,
    "apply": _bind_apply,
    "bias": _bind_bias,
    "sigmoid": _bind_sigmoid,
    "concat": _bind_concat,
    "scale": _make_scalar_binder(np.multiply),
    "shift": _make_scalar_binder(np.add),
}


@dataclass(frozen=True, slots=True)
class SubgraphOptions:
    """Options of a static subgraph (dynbatch.harness.vertex.subgraph).

    Attributes:
        layout: order of values in memory: "dynet" or "pq" (PQ tree).
        ahead_of_time: decide addresses and copies once instead of on every call.
        pre_gather: store the parameters of a batch consecutively before the first call.
    """

    layout: Literal["dynet", "pq"] = "pq"
    ahead_of_time: bool = True
    pre_gather: bool = True


class Adapter(System):
    """System that runs single cells.

    `prepare` searches for batches and a layout, and allocates memory for batch_size instances.
    `run` computes only the block. `result` assembles loss and outputs.
    """

    phases = ("forward",)
    places_inputs = True
    option_type = SubgraphOptions
    options: SubgraphOptions

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return the reason if the trial is not inference of a single cell on the CPU."""
        if not isinstance(model, CellModel):
            return f"runs single cells only, got model {model.name}; choose model=cell"
        if settings.mode != "infer":
            return "runs inference only; set mode=infer"
        return None if settings.device == "cpu" else "runs on a CPU only; set device=cpu"

    def prepare(self, model: Model, weights: Weights) -> None:
        """Batch the cell's operators and lay out its values."""
        assert isinstance(model, CellModel)  # see skip
        self.model, self.weights = model, dict(weights)
        functions = trace_functions(model)
        self.given = functions["given"]
        self.block = OperatorBlock(functions["cell"])
        self.plan = plan_block(self.block, self.options.layout, pre_gather=self.options.pre_gather)
        self.executors: dict[int, BlockExecutor] = {}
        # To collect a mini-batch's inputs takes four times as long as a run.
        self.collect_inputs = Once(self._collect_inputs)
        self._prepare_executor(self.settings.batch_size)

    def _prepare_executor(self, n_instances: int) -> BlockExecutor:
        if n_instances not in self.executors:
            self.executors[n_instances] = BlockExecutor(
                self.plan, self.weights, n_instances, ahead_of_time=self.options.ahead_of_time
            )
        return self.executors[n_instances]

    def load(self, instances: Sequence[Any]) -> None:
        """Write the cell's inputs to their addresses."""
        inputs = self.collect_inputs(instances)
        self.executor = self._prepare_executor(len(next(iter(inputs.values()))))
        self.executor.place(inputs)

    def _collect_inputs(self, instances: Sequence[Any]) -> Mapping[int, Array]:
        """Return the values of the cell's inputs by node, each (n, width)."""
        mini_batch = self.model.mini_batch(instances)
        graph, nodes = mini_batch.graph, self.block.nodes
        read = {state: self.given.nodes[i].inputs for state, i in self.given.scatter}
        inputs = {}
        for i, node in enumerate(nodes):
            if node.op == "gather":
                table, rows = (self.given.nodes[k].name for k in read[node.name])
                vertices = graph.args[graph.arg_start[mini_batch.outputs] + node.index]
                inputs[i] = self.weights[table][mini_batch.pulls[rows][vertices]]
        return inputs

    def run(self, clock: Clock, *, update: bool = True) -> None:
        self.executor.run()
        clock.mark("forward")

    def result(self) -> Result:
        """Return the outputs in the order of CellModel.output, and their sum as loss."""
        computed = dict(self.block.function.scatter)
        values = [self.executor.read_value(computed[state]) for state in self.model.described.gives]
        outputs = np.concatenate([value.reshape(len(value), -1) for value in values], axis=1)
        return Result(float(outputs.sum(dtype=np.float64)), outputs, {}, self.counters())

    def parameters(self) -> Parameters:
        """Return copies of the initial weights, because nothing is trained."""
        return {name: value.copy() for name, value in self.weights.items()}

    def counters(self) -> Counters:
        """Return the kernels of the last call, and its copied bytes as the paper counts them."""
        done = self.executor
        n_batches = len(self.plan.layout.batches)
        return Counters(n_batches, n_batches + done.n_copies, done.bytes_copied, done.n_copies)

    def versions(self) -> dict[str, str]:
        return {"numpy": np.__version__, "blas": describe_numpy_blas()}
