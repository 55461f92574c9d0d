"""Executes one vertex function's plan with torch, on CPU or CUDA, without autograd.

Every step is a closure over preallocated memory; a `Scope` tells it which rows to work on: those of one
batch, or all of the type's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.engine.fused_cpu import FusedKernel, fuse, is_edge_group
from harness.engine.geometry import Slots, TypeGeometry
from harness.engine.layout import NOT_CONTIGUOUS
from harness.engine.loss_kernels import CPU_KERNELS
from harness.engine.memory_kernels import scatter_add, scatter_add_slot
from harness.engine.parameters import Parameters
from harness.engine.plan import (
    CopyStep,
    ElementwiseStep,
    GatherStep,
    MatmulStep,
    Memory,
    OperatorStep,
    Plan,
    Ref,
    ScatterAddStep,
    SinkStep,
    Step,
)
from harness.engine.products import multiply
from harness.engine.torch_kernels import KERNELS
from harness.engine.workspace import Matrix, Workspace
from harness.vertex.operators import EDGE

FLOAT_BYTES = 4


@dataclass(slots=True)
class Tally:
    """Counters of one pass: kernels started and bytes copied by gathers and scatters."""

    n_launches: int = 0
    bytes_copied: int = 0


@dataclass(slots=True)
class Scope:
    """Rows start to end of the type (edges edge_start to edge_end); batch -1 means all batches.

    state_row: where these rows begin among the state rows.
    """

    batch: int
    start: int
    end: int
    state_row: int
    edge_start: int = 0
    edge_end: int = 0


Run = Callable[[Scope], None]
View = Callable[[Scope], Tensor]


class TypeExecutor:
    """All steps of one plan, bound to memory; `bind` sets the mini-batch."""

    def __init__(
        self,
        plan: Plan,
        parameters: Parameters,
        shared: dict[str, Matrix],
        device: torch.device,
        tally: Tally,
    ) -> None:
        self.plan, self.parameters, self.device, self.tally = plan, parameters, device, tally
        self.space = Workspace(plan.buffers, shared, device)
        self.geometry: TypeGeometry
        self.pulls: dict[str, Tensor] = {}
        self.index: dict[Slots, Tensor] = {}
        self.is_filled: set[str] = set()  # gather buffers that hold every row of the type
        self.stages = {
            name: [self._compile(step) for step in getattr(plan, name)]
            for name in ("eager", "batch", "lazy", "backward", "backward_lazy")
        }
        self.touches_states = {
            name: any(self._reads_states(step) for step in getattr(plan, name))
            for name in self.stages
        }

    # --- one mini-batch ---

    def bind(self, geometry: TypeGeometry) -> None:
        """Take a mini-batch's rows, and make room for them."""
        self.geometry = geometry
        rows = geometry.rows
        largest = int((rows.starts[1:] - rows.starts[:-1]).max(initial=0))
        for name, matrix in self.space.own.items():
            buffer = self.plan.buffers[name]
            if buffer.domain == EDGE:
                matrix.ensure(geometry.n_edges)
            else:
                matrix.ensure(rows.n if buffer.memory is Memory.SAVED else largest)
        self.pulls = {
            name: torch.from_numpy(values).to(self.device)
            for name, values in geometry.pulls.items()
        }
        self.index = {
            slots: torch.from_numpy(gather.index).to(self.device)
            for slots, gather in geometry.gathers.items()
        }
        self.is_filled.clear()

    def run_batch(self, stage: str, batch: int) -> None:
        """Run a stage over the rows of one batch."""
        rows = self.geometry.rows
        start, end = int(rows.starts[batch]), int(rows.starts[batch + 1])
        scope = Scope(batch, start, end, int(rows.first_row[batch]))
        each = self.geometry.gathers.get(None)
        if each is not None:
            scope.edge_start, scope.edge_end = int(each.edge_start[start]), int(each.edge_start[end])
        for step in self.stages[stage]:
            step(scope)

    def run_all(self, stage: str) -> None:
        """Run a stage once over all rows; batch by batch where their states are not contiguous."""
        rows = self.geometry.rows
        if not self.stages[stage] or rows.n == 0:
            return
        if self.touches_states[stage] and not self.geometry.contiguous:
            for batch in range(len(rows.first_row)):
                self.run_batch(stage, batch)
            return
        scope = self._all_rows()
        for step in self.stages[stage]:
            step(scope)

    def pushed(self, node: int | None) -> Tensor | None:
        """All rows of a pushed value."""
        if node is None:
            return None
        return self._view(self.plan.refs[node])(self._all_rows())

    def _all_rows(self) -> Scope:
        rows = self.geometry.rows
        return Scope(-1, 0, rows.n, int(rows.first_row[0]), 0, self.geometry.n_edges)

    # --- steps ---

    def _compile(self, step: Step) -> Run:
        if isinstance(step, GatherStep):
            return self._gather(step)
        if isinstance(step, MatmulStep):
            return self._matmul(step)
        if isinstance(step, ElementwiseStep):
            if len(step.nodes) > 1 or self._only_fused(step):
                return self._fused(step)
            return self._operator(step.nodes[0])
        if isinstance(step, OperatorStep):
            return self._operator(step.node)
        if isinstance(step, CopyStep):
            return self._copy(step)
        if isinstance(step, ScatterAddStep):
            return self._scatter_add(step)
        return self._sink(step)

    def _only_fused(self, step: ElementwiseStep) -> bool:
        """Whether a single operator reads children directly or adds to them, as only kernels can."""
        i = step.nodes[0]
        direct = any(
            self.plan.nodes[k].op != "parameter" and k not in self.plan.refs
            for k in self.plan.nodes[i].inputs
        )
        return direct or bool(step.added_to)

    def _reads_states(self, step: Step) -> bool:
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

    def _view(self, ref: Ref) -> View:
        matrix, start, width = self.space.matrix(ref.buffer), ref.start, ref.width
        buffer = self.plan.buffers[ref.buffer]
        if ref.buffer.startswith("gather"):
            return self._gathered_view(ref)
        if buffer.domain == EDGE:
            if buffer.memory is Memory.SCRATCH:
                return lambda s: matrix.slice(start, width)[: s.edge_end - s.edge_start]
            return lambda s: matrix.slice(start, width)[s.edge_start : s.edge_end]
        if buffer.memory is Memory.SAVED:
            return lambda s: matrix.slice(start, width)[s.start : s.end]
        if buffer.memory is Memory.SCRATCH:
            return lambda s: matrix.slice(start, width)[: s.end - s.start]
        return lambda s: matrix.slice(start, width)[s.state_row : s.state_row + s.end - s.start]

    # --- gathers and scatters ---

    def _gather(self, step: GatherStep) -> Run:
        matrix = self.space.matrix(step.buffer)
        states = self.space.shared
        name, width = f"state:{step.state}", matrix.width

        def run(s: Scope) -> None:
            gather = self.geometry.gathers[step.slots]
            first = gather.whole if s.batch < 0 else int(gather.first[s.batch])
            if first == NOT_CONTIGUOUS:
                self._copy_rows(step.slots, states[name], matrix, s)

        if name not in states:
            states[name] = Matrix(width // len(step.slots or (0,)), self.device)
        return run

    def _copy_rows(self, slots: Slots, state: Matrix, matrix: Matrix, s: Scope) -> None:
        """Copy children's states into the rows of the scope."""
        n_slots = 1 if slots is None else len(slots)
        start, end = (s.edge_start, s.edge_end) if slots is None else (s.start, s.end)
        target = matrix.tensor[start:end].view((end - start) * n_slots, state.width)
        index = self.index[slots][start * n_slots : end * n_slots]
        torch.index_select(state.tensor, 0, index, out=target)
        self.tally.n_launches += 1
        self.tally.bytes_copied += target.numel() * FLOAT_BYTES

    def _gathered_view(self, ref: Ref) -> View:
        """A gather as a matrix: the children's rows themselves where they follow one another."""
        matrix = self.space.matrix(ref.buffer)
        kind, state_name = ref.buffer.split(":")
        slots = None if kind == "gather_each" else self.plan.slots[state_name]
        n_slots = 1 if slots is None else len(slots)
        columns = slice(ref.start, ref.start + ref.width)

        def view(s: Scope) -> Tensor:
            gather = self.geometry.gathers[slots]
            first = gather.whole if s.batch < 0 else int(gather.first[s.batch])
            start, end = (s.edge_start, s.edge_end) if slots is None else (s.start, s.end)
            if first != NOT_CONTIGUOUS:
                state = self.space.shared[f"state:{state_name}"]
                rows = state.tensor[first : first + (end - start) * n_slots]
                return rows.view(end - start, matrix.width)[:, columns]
            if s.batch < 0 and ref.buffer not in self.is_filled:
                self._fill_viewed_rows(ref.buffer, slots)
            return matrix.slice(ref.start, ref.width)[start:end]

        return view

    def _fill_viewed_rows(self, buffer: str, slots: Slots) -> None:
        """Copy what batches read in place, so that the buffer holds the rows of all batches."""
        gather, rows = self.geometry.gathers[slots], self.geometry.rows
        state = self.space.shared[f"state:{buffer.split(':')[1]}"]
        for batch in (gather.first != NOT_CONTIGUOUS).nonzero()[0]:
            start, end = int(rows.starts[batch]), int(rows.starts[batch + 1])
            scope = Scope(int(batch), start, end, 0)
            if slots is None:
                scope.edge_start = int(gather.edge_start[start])
                scope.edge_end = int(gather.edge_start[end])
            self._copy_rows(slots, state, self.space.matrix(buffer), scope)
        self.is_filled.add(buffer)

    def _scatter_add(self, step: ScatterAddStep) -> Run:
        source_view = self._view(step.source)
        source = self.space.matrix(step.source.buffer)
        memory = self.plan.buffers[step.source.buffer].memory
        slots = None if step.slots is None else self.plan.slots[step.state]
        stride = 1 if slots is None else len(slots)
        at = 0 if slots is None or step.slots is None else slots.index(step.slots[0])
        every_slot = step.slots == slots
        n_parts = stride if every_slot else 1

        def run(s: Scope) -> None:
            target = self.space.shared[f"gradient:{step.state}"]
            gather = self.geometry.gathers[slots]
            start, end = (s.edge_start, s.edge_end) if slots is None else (s.start, s.end)
            first = gather.whole if s.batch < 0 else int(gather.first[s.batch])
            n = end - start
            self.tally.n_launches += 1
            if first != NOT_CONTIGUOUS and every_slot:
                rows = target.tensor[first : first + n * stride]
                rows.view(n, stride * target.width).add_(source_view(s))
                return
            self.tally.bytes_copied += n * n_parts * target.width * FLOAT_BYTES
            if target.array is None or source.array is None:
                index = self.index[slots][start * stride : end * stride]
                index = index if every_slot else index[at::stride]
                values = source_view(s).reshape(n * n_parts, target.width)
                target.tensor.index_add_(0, index, values)
                return
            row = {Memory.SAVED: start, Memory.SCRATCH: 0}.get(memory, s.state_row)
            if every_slot:
                scatter_add(
                    target.array, gather.index, start * stride,
                    source.array, row, step.source.start, n, stride,
                )  # fmt: skip
            else:
                scatter_add_slot(
                    target.array, gather.index, start * stride + at, stride,
                    source.array, row, step.source.start, n,
                )  # fmt: skip

        return run

    # --- arithmetic ---

    def _matmul(self, step: MatmulStep) -> Run:
        x, out = self._view(step.x), self._view(step.out)
        weight = self.parameters.values[step.parameter]
        weight = weight.t() if step.transposed else weight
        bias = None if step.bias is None else self.parameters.values[step.bias]
        tally = self.tally

        def run(s: Scope) -> None:
            tally.n_launches += 1
            if step.accumulate:
                out(s).addmm_(x(s), weight)
            elif bias is not None:
                torch.addmm(bias, x(s), weight, out=out(s))
            else:
                multiply(x(s), weight, out(s))

        return run

    def _operand(self, i: int) -> View:
        node = self.plan.nodes[i]
        if node.op == "parameter":
            value = self.parameters.values[node.name]
            return lambda s: value
        if node.op == "pull":
            return lambda s: self.pulls[node.name][s.start : s.end]
        return self._view(self.plan.refs[i])

    def _operator(self, i: int) -> Run:
        node = self.plan.nodes[i]
        if node.op in ("spread", "sum_edges"):
            return self._between_edges_and_vertices(i)
        operands = [self._operand(k) for k in node.inputs]
        out, tally = self._view(self.plan.refs[i]), self.tally
        on_cpu = self.device.type == "cpu" and node.op in CPU_KERNELS
        kernel = CPU_KERNELS[node.op] if on_cpu else KERNELS[node.op]

        def run(s: Scope) -> None:
            tally.n_launches += 1
            kernel(node, [operand(s) for operand in operands], out(s))

        return run

    def _between_edges_and_vertices(self, i: int) -> Run:
        node = self.plan.nodes[i]
        operand, out = self._operand(node.inputs[0]), self._view(self.plan.refs[i])

        def run(s: Scope) -> None:
            self.tally.n_launches += 1
            edge_start = self.geometry.gathers[None].edge_start[s.start : s.end + 1]
            counts = torch.from_numpy(edge_start[1:] - edge_start[:-1]).to(self.device)
            owner = torch.repeat_interleave(counts)
            if node.op == "spread":
                out(s).copy_(operand(s)[owner])
            else:
                out(s).zero_().index_add_(0, owner, operand(s))

        return run

    def _fused(self, step: ElementwiseStep) -> Run:
        kernel = fuse(self.plan, step)
        on_edges, tally = is_edge_group(self.plan, step), self.tally

        def run(s: Scope) -> None:
            tally.n_launches += 1
            start, end = (s.edge_start, s.edge_end) if on_edges else (s.start, s.end)
            kernel.function(end - start, start, s.state_row, *self._arrays(kernel))

        return run

    def _arrays(self, kernel: FusedKernel) -> list[object]:
        arrays: list[object] = []
        for kind, name in kernel.arrays:
            if kind == "buffer":
                arrays.append(self.space.matrix(name).array)
            elif kind == "parameter":
                arrays.append(self.parameters.arrays[name])
            else:
                arrays.append(self.geometry.gathers[name].index)
        return arrays

    def _copy(self, step: CopyStep) -> Run:
        source, out, tally = self._view(step.source), self._view(step.out), self.tally

        def run(s: Scope) -> None:
            tally.n_launches += 1
            tally.bytes_copied += out(s).copy_(source(s)).numel() * FLOAT_BYTES

        return run

    def _sink(self, step: SinkStep) -> Run:
        node = self.plan.nodes[step.node]
        operands = [self._operand(k) for k in node.inputs]
        add = {
            "outer_sum": self.parameters.add_outer,
            "vertex_sum": self.parameters.add_sum,
            "row_sum": self.parameters.add_rows,
        }[node.op]

        def run(s: Scope) -> None:
            self.tally.n_launches += 1
            add(node.name, *(operand(s) for operand in operands))

        return run


