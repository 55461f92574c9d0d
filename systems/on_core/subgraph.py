"""A single cell with batched and laid-out operators: ED-Batch's static-subgraph ablation.

NumPy does the arithmetic, with one call per batch.

Source: Chen et al., "ED-Batch", ICML 2023, Table 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

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
from dynbatch.harness.vertex.subgraph.block import OperatorBlock
from dynbatch.harness.vertex.subgraph.plan import plan_block
from dynbatch.systems.on_core.subgraph_executor import BlockExecutor


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
        self._prepare_executor(self.settings.batch_size)

    def _prepare_executor(self, n_instances: int) -> BlockExecutor:
        if n_instances not in self.executors:
            self.executors[n_instances] = BlockExecutor(
                self.plan, self.weights, n_instances, ahead_of_time=self.options.ahead_of_time
            )
        return self.executors[n_instances]

    def load(self, instances: Sequence[Any]) -> None:
        """Write the cell's inputs to their addresses."""
        mini_batch = self.model.mini_batch(instances)
        graph, nodes = mini_batch.graph, self.block.nodes
        read = {state: self.given.nodes[i].inputs for state, i in self.given.scatter}
        inputs = {}
        for i, node in enumerate(nodes):
            if node.op == "gather":
                table, rows = (self.given.nodes[k].name for k in read[node.name])
                vertices = graph.args[graph.arg_start[mini_batch.outputs] + node.index]
                inputs[i] = self.weights[table][mini_batch.pulls[rows][vertices]]
        self.executor = self._prepare_executor(len(mini_batch.outputs))
        self.executor.place(inputs)

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
        """Return the version of NumPy and the name of its BLAS library."""
        return {"numpy": np.__version__, "blas": describe_numpy_blas()}
