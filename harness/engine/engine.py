"""The engine: vertex functions, lowered once, executed batch by batch as a schedule says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from harness.engine.backends.compiled.loop import CompiledLoop, compile_loop
from harness.engine.backends.stepwise.executor import TypeExecutor
from harness.engine.lowering.lower import lower
from harness.engine.lowering.plan import Plan
from harness.engine.memory.bound import Tally
from harness.engine.memory.parameters import Parameters
from harness.engine.memory.workspace import Matrix
from harness.engine.rows.geometry import output_geometry, space_of_type, type_geometry
from harness.engine.rows.layout import Index, Layout, plan_layout
from harness.engine.switches import Switches
from harness.values.graph import MiniBatch
from harness.values.instances import IntArray
from harness.values.schedule import Schedule
from harness.vertex.folding import fold_tables
from harness.vertex.program import VertexFunction

OUTPUT = -1  # key of the output function among the executors
# A loop of all functions takes seconds to compile; where more keep joining it is given up.
MAX_TIMES_GROWN = 3


class Engine:
    """Executes forward, backward and update of mini-batches.

    functions: vertex functions by type id; more may join later, and are compiled when a mini-batch
    is arranged (at operator granularity every number of children has a sum of its own).
    output: read from MiniBatch.outputs after the last batch, or None where outputs are vertices
    themselves. weights: initial float32 values.
    """

    def __init__(
        self,
        functions: Mapping[int, VertexFunction],
        output: VertexFunction | None,
        weights: Mapping[str, NDArray[np.float32]],
        switches: Switches,
        device: str,
        train: bool,
    ) -> None:
        self.device = torch.device(device)
        if self.device.type != "cpu":
            switches = replace(switches, fusion=False)  # kernels are generated for the CPU
        self.switches, self.train = switches, train
        self.tally = Tally()
        self.parameters = Parameters(weights, self.device)
        self.states: dict[str, Matrix] = {}
        self.functions = functions
        self.executors: dict[int, TypeExecutor] = {}
        self.loops: dict[str, CompiledLoop | None] = {}  # by stage, once it has run
        self.n_times_grown = -1
        if output is not None:
            self.executors[OUTPUT] = self._executor(output)
        self._compile_new_functions()
        self.mini_batch: MiniBatch
        self.layout: Layout
        self.output_order: Index

    def _compile_new_functions(self) -> None:
        """Make executors where `functions` has grown, and number the row spaces anew."""
        new = {t: f for t, f in self.functions.items() if t not in self.executors}
        self.n_compiled = len(self.functions)
        self.executors |= {t: self._executor(f) for t, f in new.items()}
        written = [self._written_states(t) for t in range(max(self.functions, default=0) + 1)]
        self.space_of_type = space_of_type(written)
        self.space_of_state = {
            state: self.space_of_type[t] for t, states in enumerate(written) for state in states
        }
        self.loops.clear()
        self.n_times_grown += 1

    def _loop(self, stage: str) -> CompiledLoop | None:
        """All batches in one compiled call, where switches and steps allow it."""
        if self.device.type != "cpu" or self.switches.loop != "compiled":
            return None
        if self.n_times_grown > MAX_TIMES_GROWN:
            return None
        mine = {t: self.executors[t] for t in self.functions}
        plans = {t: executor.plan for t, executor in mine.items()}
        return compile_loop(plans, {t: executor.bound for t, executor in mine.items()}, stage)

    def _run_batches(self, stage: str, batches: IntArray) -> None:
        if stage not in self.loops:
            self.loops[stage] = self._loop(stage)
        loop = self.loops[stage]
        if loop is not None:
            loop.run(batches, self.tally)
            return
        for type_id, batch in batches.tolist():
            self.executors[type_id].run_batch(stage, batch)

    def _executor(self, function: VertexFunction) -> TypeExecutor:
        if self.switches.fold_tables and not self.train:
            function, folded = fold_tables(function)
            self.parameters.fold(folded)
        plan = lower(function, self.switches, self.train)
        self.parameters.pack(plan.packs)
        return TypeExecutor(plan, self.parameters, self.states, self.device, self.tally)

    def _written_states(self, type_id: int) -> frozenset[str]:
        if type_id not in self.executors:
            return frozenset()
        return written_states(self.executors[type_id].plan)

    def arrange(self, mini_batch: MiniBatch, schedule: Schedule) -> None:
        """Lay a scheduled mini-batch out in memory; part of the schedule phase."""
        self.mini_batch = mini_batch
        if len(self.functions) > self.n_compiled:
            self._compile_new_functions()
        reorder = self.switches.layout == "read_order"
        self.layout = plan_layout(mini_batch, schedule, self.space_of_type, reorder=reorder)
        for type_id, rows in self.layout.types.items():
            executor = self.executors[type_id]
            executor.bind(type_geometry(executor.plan, mini_batch, self.layout, rows))
        if OUTPUT in self.executors:
            output = self.executors[OUTPUT]
            geometry, self.output_order = output_geometry(output.plan, mini_batch, self.layout)
            output.bind(geometry)
        for name, matrix in self.states.items():
            matrix.ensure(self.layout.n_rows[self.space_of_state[name.split(":")[1]]])

    def forward(self) -> float:
        """Run all batches; returns the loss, summed over the mini-batch."""
        self.tally.n_launches = self.tally.bytes_copied = 0
        for type_id in self.layout.types:
            self.executors[type_id].run_all("eager")
        self._run_batches("batch", self.layout.batches)
        for type_id in self.layout.types:
            self.executors[type_id].run_all("lazy")
        if OUTPUT in self.executors:
            self.executors[OUTPUT].run_batch("batch", 0)
            self.executors[OUTPUT].run_all("lazy")
        return self._loss()

    def _loss(self) -> float:
        losses = [
            self.executors[type_id].value(self.executors[type_id].plan.loss)
            for type_id in (*self.layout.types, OUTPUT)
            if type_id in self.executors
        ]
        return float(sum(loss.sum() for loss in losses if loss is not None))

    def backward(self) -> None:
        """Run all batches in reverse, then the parameter gradients that were put off."""
        self.parameters.clear()
        for name, matrix in self.states.items():
            if name.startswith("gradient:"):
                n_rows = self.layout.n_rows[self.space_of_state[name.split(":")[1]]]
                matrix.tensor[:n_rows].zero_()
        if OUTPUT in self.executors:
            self.executors[OUTPUT].run_batch("backward", 0)
            self.executors[OUTPUT].run_all("backward_lazy")
        self._run_batches("backward", self.layout.batches[::-1])
        for type_id in self.layout.types:
            self.executors[type_id].run_all("backward_lazy")

    def update(self, learning_rate: float) -> None:
        """One step of plain SGD."""
        self.parameters.update(learning_rate)

    def outputs(self) -> NDArray[np.float32]:
        """Pushed values in the order of MiniBatch.outputs (k, d)."""
        if OUTPUT not in self.executors:
            return self._output_states()
        executor = self.executors[OUTPUT]
        pushed = executor.value(executor.plan.push)
        assert pushed is not None
        rows = pushed.cpu().numpy()
        result = np.empty_like(rows)
        result[self.output_order] = rows
        return result

    def _output_states(self) -> NDArray[np.float32]:
        """States of the vertices that are outputs themselves."""
        vertices = self.mini_batch.outputs
        plan = self.executors[int(self.mini_batch.functions[vertices[0]])].plan
        (state,) = written_states(plan)
        rows = torch.from_numpy(self.layout.row[vertices].astype(np.int64)).to(self.device)
        values: NDArray[np.float32] = self.states[f"state:{state}"].tensor[rows].cpu().numpy()
        return values


def written_states(plan: Plan) -> frozenset[str]:
    """States that a vertex function scatters."""
    return frozenset(name.split(":")[1] for name in plan.buffers if name.startswith("state:"))
