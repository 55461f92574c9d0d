"""Every step of a plan as a few lines of generated code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatchmethod

from harness.engine.backends.compiled.arguments import (
    COPIES_FROM,
    CountOf,
    GradientOf,
    HalfOf,
    ParameterOf,
    PullOf,
    TransposedOf,
    WrittenOf,
)
from harness.engine.backends.compiled.elementwise import group_lines
from harness.engine.backends.compiled.operators import LAUNCH, MOVING, OperatorWriter
from harness.engine.backends.compiled.places import BLAS, Place, Rows, of, of_one
from harness.engine.lowering.plan import (
    CopyStep,
    ElementwiseStep,
    GatherStep,
    MatmulStep,
    OperatorStep,
    PackStep,
    ScatterAddStep,
    SinkStep,
    SoftmaxLossStep,
    Step,
    gradient_buffer,
    state_buffer,
)
from harness.vertex.operators import EDGE

# What only brings data from one place to another, operators of MOVING apart.
MOVING_STEPS = (GatherStep, ScatterAddStep, CopyStep, PackStep)


@dataclass(slots=True)
class StageWriter(OperatorWriter):
    """One vertex function's stage, for one of its batches."""

    def write(self, steps: Sequence[Step]) -> list[str]:
        """Lines that run the steps of batch `b` of this function."""
        for step in steps:
            self._take_rows(step)
            begin = len(self.lines)
            self._step(step)
            if self.profile and self._moves(step):
                self.lines.insert(begin, "moving = cycles()")
                self.lines.append("tally[2] += cycles() - moving")
        return [*self.head(), *self.lines]

    def _take_rows(self, step: Step) -> None:
        """Go over to the rows that a step works on."""
        if isinstance(step, SinkStep | PackStep):
            self.take(Rows.ALL)
        elif isinstance(step, ScatterAddStep):
            self.take(Rows.UNLESS_APART, self._apart({(step.state, step.slots is None)}))
        elif isinstance(step, ElementwiseStep) and step.added_to:
            added_to = {(state, slot is None) for _, state, slot in step.added_to}
            self.take(Rows.UNLESS_APART, self._apart(added_to))
        else:
            self.take(Rows.SHARE)

    def _apart(self, added_to: set[tuple[str, bool]]) -> str:
        """Whether no two vertices of a batch add to the same row of these states' gradients.

        A state whose children are read by slot and by edge as well has two lists of them, of which
        one does not tell of the other.
        """
        nodes = self.plan.nodes
        by_edge = {node.name for node in nodes if node.op == "gather_each"}
        by_slot = {node.name for node in nodes if node.op == "gather"}
        if any(state in by_edge & by_slot for state, _ in added_to):
            return "False"
        found = {None if of_edges else self.plan.slots[state] for state, of_edges in added_to}
        return " and ".join(self.apart(slots) for slots in sorted(found, key=str))

    def _moves(self, step: Step) -> bool:
        """Whether a step only moves data; what arithmetic reads where it lies moves none."""
        if isinstance(step, OperatorStep):
            return self.plan.nodes[step.node].op in MOVING
        return isinstance(step, MOVING_STEPS)

    @singledispatchmethod
    def _step(self, step: Step) -> None:
        raise TypeError(f"{type(step).__name__} is no step")

    @_step.register
    def _gather_step(self, step: GatherStep) -> None:
        slots = step.slots
        n_slots = 1 if slots is None else len(slots)
        row, n = ("edge_start", "n_edges") if slots is None else ("start", "n")
        arrays = [
            self.array_of(state_buffer(step.state)),
            self.index(slots),
            f"{row} * {n_slots}",
            self.array_of(step.buffer),
        ]
        self.lines += [
            f"if {self.first_of(slots)} < 0:",
            f"    {LAUNCH}",
            f"    n_bytes += gather_rows({', '.join(arrays)}, {row}, {n}, {n_slots})",
        ]

    @_step.register
    def _copy(self, step: CopyStep) -> None:
        source, out = self.place(step.source), self.place(step.out)
        n = self.n(self.buffer(step.out).domain)
        self.lines += [
            LAUNCH,
            f"n_bytes += copy_block({of(source)}, {of(out)}, {n}, {step.out.width})",
        ]

    @_step.register
    def _pack(self, step: PackStep) -> None:
        pack = self.parameter(step.pack.name)
        shape = f"array_of({pack}).shape"
        width, n = f"{shape}[-1]", f"array_of({pack}).size // {shape}[-1]"
        self.lines += [LAUNCH, "if thread == 0:"]
        for part, at in step.pack.places():
            source = self.parameter(part.parameter)
            row = f"array_of({source}).shape[-1]"
            columns = f"{source}, {part.start}, {row}, {pack}, {at}, {width}"
            self.lines.append(f"    n_bytes += copy_block({columns}, {n}, {part.width})")

    @_step.register
    def _matmul(self, step: MatmulStep) -> None:
        shape = self._parameter_shape(step)
        k = shape[1] if step.transposed else shape[0]
        n = self.n(self.buffer(step.out).domain)
        weight = self.name_of((HalfOf if self.half else ParameterOf)(step.parameter))
        if step.x.width == k:
            x, out = self.place(step.x), self.place(step.out)
            lines, inside = [LAUNCH], ""
        else:
            x, out, n, loop = self._rows_of_matrices(step, k, n)
            lines, inside = [LAUNCH, *loop], "    " if loop else ""
        if step.bias is not None:
            lines.append(f"{inside}fill_rows({of(out)}, {n}, {self.parameter(step.bias)})")
        accumulate = step.accumulate or step.bias is not None
        multiply = "multiply_half" if self.half else "multiply"

        def product(weight: str, *, transposed: bool) -> str:
            how = f"{weight}, {transposed}, {accumulate}"
            return f"{multiply}({of(x)}, {n}, {how}, {of(out)}, {BLAS})"

        plain = product(weight, transposed=step.transposed)
        if step.transposed and self._has_few_rows and not self.half:
            copied = self.name_of(TransposedOf(self.type_id, step.parameter))
            lines += [
                f"{inside}if {self.name_of(CountOf(self.type_id))}[0] >= {COPIES_FROM}:",
                f"{inside}    {product(copied, transposed=False)}",
                f"{inside}else:",
                f"{inside}    {plain}",
            ]
        else:
            lines.append(f"{inside}{plain}")
        self.lines += lines

    def _rows_of_matrices(
        self, step: MatmulStep, k: int, n: str
    ) -> tuple[Place, Place, str, list[str]]:
        """Where the rows of matrices and of their products begin, how many, and in which loop."""
        per_vertex = step.x.width // k
        width = step.out.width // per_vertex
        loop = [f"for m in range({n}):"]
        if self.in_place(step.x):
            x, out, n = self.place_of_one(step.x), self.place_of_one(step.out), str(per_vertex)
        else:
            x, out = self.place(step.x), self.place(step.out)
            if (x.stride, out.stride) == (step.x.width, step.out.width):  # all rows follow on
                loop, n = [], f"{n} * {per_vertex}"
            else:  # one product of each vertex's rows
                x, out, n = of_one(x), of_one(out), str(per_vertex)
        return Place(x.array, x.at, k), Place(out.array, out.at, width), n, loop

    @property
    def _has_few_rows(self) -> bool:
        """Whether products are of one batch of many.

        A library rearranges W^T for each product, for few rows as long as it multiplies: 32 rows by
        256 x 1 024 transposed run at 114 GFLOP/s, by a copy at 202 (one Zen 5 core, oneDNN).
        """
        return self.type_id > 0 and not self.whole

    def _parameter_shape(self, step: MatmulStep) -> tuple[int, ...]:
        return next(
            node.shape
            for node in self.plan.nodes
            if node.op == "parameter" and node.name == step.parameter
        )

    @_step.register
    def _elementwise(self, step: ElementwiseStep) -> None:
        operands = {k for i in step.nodes for k in self.plan.nodes[i].inputs}
        views = {}
        for k in sorted(operands - set(step.nodes)):
            if self._spans_children(k):
                views[k] = self.own(f"v{k}_")
                self.lines.append(f"{views[k]} = {self.rows_of(self.plan.refs[k])}")
        on_edges = self.plan.nodes[step.nodes[0]].domain == EDGE
        rows = ("n_edges", "edge_start", "edge_at") if on_edges else ("n", "start", "at")
        prefix = self.own("t") + "_"
        self.lines.append(LAUNCH)
        self.lines += group_lines(
            self.type_id, self.plan, step, self.name_of, rows=rows, prefix=prefix, views=views
        )

    def _spans_children(self, i: int) -> bool:
        """Whether a value is several children's states side by side."""
        ref = self.plan.refs.get(i)
        if ref is None or not ref.buffer.is_gathered:
            return False
        slots = self.plan.gathered(ref.buffer)
        return slots is not None and ref.width > self.buffer(ref).width // len(slots)

    @_step.register
    def _scatter_add(self, step: ScatterAddStep) -> None:
        slots = None if step.slots is None else self.plan.slots[step.state]
        stride = 1 if slots is None else len(slots)
        target, index = self.array_of(gradient_buffer(step.state)), self.index(slots)
        begin, n = ("edge_start", "n_edges") if slots is None else ("start", "n")
        width = f"array_of({target}).shape[1]"
        if step.source.buffer.is_gathered:  # a gradient that is a state: its rows, wherever
            values = f"{self.rows_of(step.source)}, 0, 0, {n}"
        else:
            source, row = self.array_of(step.source.buffer), self.row(self.buffer(step.source))
            values = f"{source}, {row}, {step.source.start}, {n}"
        if step.slots == slots:
            counted = f"if {self.first_of(slots)} < 0:"
            self.lines += [
                LAUNCH, counted, f"    n_bytes += 4 * {n} * {stride} * {width}",
                f"scatter_add({target}, {index}, {begin} * {stride}, {values}, {stride})",
            ]  # fmt: skip
            return
        assert slots is not None
        assert step.slots is not None
        first = f"{begin} * {stride} + {slots.index(step.slots[0])}"
        self.lines += [
            LAUNCH, f"n_bytes += 4 * {n} * {width}",
            f"scatter_add_slot({target}, {index}, {first}, {stride}, {values})",
        ]  # fmt: skip

    @_step.register
    def _sink(self, step: SinkStep) -> None:
        """Gradients of parameters; those of looked-up rows stay where they are until the update."""
        node = self.plan.nodes[step.node]
        self.lines.append(LAUNCH)
        if node.op == "row_sum":
            return
        *inputs, dy = node.inputs
        n, width = self.n(self.plan.nodes[dy].domain), node.shape[-1]
        per_vertex = self.plan.refs[dy].width // width  # rows of a matrix a vertex
        place = self.place_of_one if per_vertex > 1 else self.place
        places = [place(self.plan.refs[i]) for i in (*inputs, dy)]
        widths = [*(node.shape[0] for _ in inputs), width]
        inside = ""
        if per_vertex > 1:
            self.lines.append(f"for m in range({n}):")
            inside, n = "    ", str(per_vertex)
            places = [
                Place(place.array, place.at, row) for place, row in zip(places, widths, strict=True)
            ]
        # A thread takes rows of the gradient, which are columns of the first operand.
        first, n_own = self.own("first"), self.own("n")
        places[0] = Place(places[0].array, f"{places[0].at} + {first}", places[0].stride)
        operands = ", ".join(of(place) for place in places)
        gradient, written = self.name_of(GradientOf(node.name)), self.name_of(WrittenOf(node.name))
        target = f"part({gradient}, {first}, {n_own}), part({written}, thread, 1)"
        share = f"{first}, {n_own} = share({node.shape[0]}, FLOATS, thread, n_threads)"
        self.lines.append(inside + share)
        if node.op == "outer_sum":
            add_outer = "add_outer_half" if self.half else "add_outer"
            self.lines.append(f"{inside}{add_outer}({operands}, {n}, {target}, {BLAS})")
        else:
            self.lines.append(f"{inside}add_up_rows({operands}, {n}, {target})")

    @_step.register
    def _operator(self, step: OperatorStep) -> None:
        self.write_operator(step.node)

    @_step.register
    def _softmax_loss(self, step: SoftmaxLossStep) -> None:
        pulled = self.name_of(PullOf(self.type_id, step.label))
        operands = [
            self.rows_of(step.logits),
            "NO_BIAS" if step.bias is None else self.parameter(step.bias),
            f"part({pulled}, start, n)",
            self.rows_of(step.loss),
            self.rows_of(step.log_sum),
            str(step.leaves_gradient),
        ]
        self.lines += [LAUNCH, f"softmax_loss({', '.join(operands)})"]
