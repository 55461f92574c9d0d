"""Every step of a plan as a few lines of generated code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.engine.backends.compiled.places import BLAS, Place, Places, of
from harness.engine.cpu_kernels.fused import group_lines
from harness.engine.lowering.plan import (
    CopyStep,
    ElementwiseStep,
    GatherStep,
    MatmulStep,
    OperatorStep,
    PackStep,
    ScatterAddStep,
    Step,
)
from harness.vertex.operators import EDGE, Node

LAUNCH = "tally[0] += 1"
# Operators whose kernel takes the rows of its operands and of its result, and nothing else.
ROW_BY_ROW = (
    *("pick_neg_log_softmax", "softmax_minus_one_hot"),
    *("sum_elements", "expand", "apply", "apply_transposed", "outer"),
)


class HasNoForm(Exception):  # noqa: N818 - never leaves this module
    """A step that the compiled loop cannot run."""


@dataclass(slots=True)
class StageWriter(Places):
    """One vertex function's stage, for one of its batches."""

    def write(self, steps: Sequence[Step]) -> list[str]:
        """Lines that run the steps of batch `b` of this type."""
        for step in steps:
            self._step(step)
        starts = self._array("starts")
        head = [f"start = {starts}[b]", f"n = {starts}[b + 1] - start"]
        head.append(f"state_row = {self._array('first_row')}[b]")
        if self._has_edges():
            edges = self._array("edge_start")
            head += [f"edge_start = {edges}[start]", f"n_edges = {edges}[start + n] - edge_start"]
        return [*head, *self.lines]

    def _step(self, step: Step) -> None:
        if isinstance(step, GatherStep):
            self._gather_step(step)
        elif isinstance(step, MatmulStep):
            self._matmul(step)
        elif isinstance(step, ElementwiseStep):
            self._elementwise(step)
        elif isinstance(step, CopyStep):
            source, out = self._place(step.source), self._place(step.out)
            n = self._n(self._buffer(step.out).domain)
            self.lines += [
                LAUNCH,
                f"tally[1] += copy_block({of(source)}, {of(out)}, {n}, {step.out.width})",
            ]
        elif isinstance(step, PackStep):
            self._pack(step)
        elif isinstance(step, ScatterAddStep):
            self._scatter_add(step)
        elif isinstance(step, OperatorStep):
            self._operator(step.node)
        else:
            raise HasNoForm

    def _pack(self, step: PackStep) -> None:
        pack = self._array("parameter", step.pack.name)
        width, n = f"{pack}.shape[-1]", f"{pack}.size // {pack}.shape[-1]"
        self.lines.append(LAUNCH)
        for part, at in step.pack.places():
            source = self._array("parameter", part.parameter)
            columns = f"{source}, {part.start}, {source}.shape[-1], {pack}, {at}, {width}"
            self.lines.append(f"tally[1] += copy_block({columns}, {n}, {part.width})")

    def _gather_step(self, step: GatherStep) -> None:
        slots = step.slots
        n_slots = 1 if slots is None else len(slots)
        row, n = ("edge_start", "n_edges") if slots is None else ("start", "n")
        arrays = [
            self._array("buffer", f"state:{step.state}"),
            self._array("index", slots),
            f"{row} * {n_slots}",
            self._array("buffer", step.buffer),
        ]
        self.lines += [
            f"if {self._array('first', slots)}[b] < 0:",
            f"    {LAUNCH}",
            f"    tally[1] += gather_rows({', '.join(arrays)}, {row}, {n}, {n_slots})",
        ]

    def _matmul(self, step: MatmulStep) -> None:
        shape = self._parameter_shape(step)
        k = shape[1] if step.transposed else shape[0]
        n = self._n(self._buffer(step.out).domain)
        x, out = self._place(step.x), self._place(step.out)
        weight = self._array("parameter", step.parameter)
        lines = [LAUNCH]
        if step.x.width != k:  # a matrix a vertex: one product of its rows
            per_vertex, stride = step.x.width // k, step.out.width // (step.x.width // k)
            lines.append(f"for m in range({n}):")
            x = Place(x.array, f"{x.at} + m * {x.stride}", k)
            out = Place(out.array, f"{out.at} + m * {out.stride}", stride)
            n = str(per_vertex)
        inside = "    " if step.x.width != k else ""
        if step.bias is not None:
            bias = self._array("parameter", step.bias)
            lines.append(f"{inside}fill_rows({of(out)}, {n}, {bias})")
        accumulate = step.accumulate or step.bias is not None
        how = f"{weight}, {step.transposed}, {accumulate}"
        lines.append(f"{inside}multiply({of(x)}, {n}, {how}, {of(out)}, {BLAS})")
        self.lines += lines

    def _parameter_shape(self, step: MatmulStep) -> tuple[int, ...]:
        return next(
            node.shape
            for node in self.plan.nodes
            if node.op == "parameter" and node.name == step.parameter
        )

    def _elementwise(self, step: ElementwiseStep) -> None:
        if any(self._spans_children(k) for i in step.nodes for k in self.plan.nodes[i].inputs):
            raise HasNoForm  # kernels read one child's state at a time
        on_edges = self.plan.nodes[step.nodes[0]].domain == EDGE
        rows = ("n_edges", "edge_start") if on_edges else ("n", "start")
        prefix = self._own("t") + "_"
        self.lines.append(LAUNCH)
        self.lines += group_lines(self.plan, step, self._array, rows=rows, prefix=prefix)

    def _spans_children(self, i: int) -> bool:
        """Whether a value is several children's states side by side."""
        ref = self.plan.refs.get(i)
        if ref is None or not ref.buffer.startswith("gather:"):
            return False
        _, slots, width = self._gather(ref.buffer)
        return slots is not None and ref.width > width // len(slots)

    def _scatter_add(self, step: ScatterAddStep) -> None:
        slots = None if step.slots is None else self.plan.slots[step.state]
        stride = 1 if slots is None else len(slots)
        target, index = self._array("buffer", f"gradient:{step.state}"), self._array("index", slots)
        if step.source.buffer.startswith("gather"):
            raise HasNoForm
        source, row = (
            self._array("buffer", step.source.buffer),
            self._row(self._buffer(step.source)),
        )
        begin, n = ("edge_start", "n_edges") if slots is None else ("start", "n")
        values = f"{source}, {row}, {step.source.start}, {n}"
        width = f"{target}.shape[1]"
        if step.slots == slots:
            counted = f"if {self._array('first', slots)}[b] < 0:"
            self.lines += [
                LAUNCH, counted, f"    tally[1] += 4 * {n} * {stride} * {width}",
                f"scatter_add({target}, {index}, {begin} * {stride}, {values}, {stride})",
            ]  # fmt: skip
            return
        assert slots is not None
        assert step.slots is not None
        first = f"{begin} * {stride} + {slots.index(step.slots[0])}"
        self.lines += [
            LAUNCH, f"tally[1] += 4 * {n} * {width}",
            f"scatter_add_slot({target}, {index}, {first}, {stride}, {values})",
        ]  # fmt: skip

    def _operator(self, i: int) -> None:
        node = self.plan.nodes[i]
        self.lines.append(LAUNCH)
        if node.op in ROW_BY_ROW:
            operands = ", ".join(self._operand(k) for k in node.inputs)
            self.lines.append(f"{node.op}({operands}, {self._rows(i)})")
            return
        write = getattr(self, f"_op_{node.op}", None)
        if write is None:
            raise HasNoForm
        write(i, node)

    def _op_zeros(self, i: int, node: Node, value: float = 0.0) -> None:
        out = self._place(self.plan.refs[i])
        self.lines.append(f"fill_block({of(out)}, {self._n(node.domain)}, {node.width}, {value})")

    def _op_ones(self, i: int, node: Node) -> None:
        self._op_zeros(i, node, 1.0)

    def _op_lookup(self, i: int, node: Node) -> None:
        table, rows = (self.plan.nodes[k].name for k in node.inputs)
        out = self._place(self.plan.refs[i])
        self.lines.append(
            f"look_up({self._array('parameter', table)}, {self._array('pull', rows)}, start,"
            f" {of(out)}, n)"
        )

    def _op_sum_edges(self, i: int, node: Node) -> None:
        (operand,) = node.inputs
        out, edges = self._place(self.plan.refs[i]), self._array("edge_start")
        if operand in self.plan.refs:
            rows = self._place(self.plan.refs[operand])
            self.lines.append(
                f"sum_edge_rows({of(rows)}, {edges}, start, {of(out)}, n, {node.width})"
            )
            return
        states = self._array("buffer", f"state:{self.plan.nodes[operand].name}")
        index = self._array("index", None)
        self.lines.append(f"sum_child_rows({states}, {index}, {edges}, start, {self._rows(i)})")

    def _op_spread(self, i: int, node: Node) -> None:
        rows, out = self._place(self.plan.refs[node.inputs[0]]), self._place(self.plan.refs[i])
        edges = self._array("edge_start")
        self.lines.append(f"spread_rows({of(rows)}, {edges}, start, {of(out)}, n, {node.width})")
