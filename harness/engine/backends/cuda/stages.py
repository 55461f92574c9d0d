"""The steps of one stage of one vertex function as kinds, in phases."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import singledispatchmethod

from harness.engine.backends.cuda.arrays import ParameterOf
from harness.engine.backends.cuda.groups import write_group
from harness.engine.backends.cuda.kinds import (
    CopyKind,
    Load,
    LoadParameter,
    Operand,
    Product,
    Store,
    TileKind,
)
from harness.engine.backends.cuda.operator_kinds import write_operator, write_softmax_loss
from harness.engine.backends.cuda.parts import (
    ProductPart,
    PulledPart,
    Sum,
    Terms,
    parameter_shape,
)
from harness.engine.backends.cuda.stage import PlacedKind, Stage, packed
from harness.engine.backends.cuda.sums import sums_of_step
from harness.engine.lowering.plan import (
    CopyStep,
    ElementwiseStep,
    GatherStep,
    MatmulStep,
    OperatorStep,
    PackStep,
    Ref,
    ScatterAddStep,
    SinkStep,
    SoftmaxLossStep,
    Step,
    gradient_buffer,
)


@dataclass(slots=True)
class StageWriter:
    """Turns the steps of a stage into kinds.

    pulled: what gradients of the function's states are the sums of. left_out: places of steps whose
    products those compute that read them. leading: elements between rows of the parameters that
    packs are made of.
    sums_after: phases behind which all is there that sums over whole functions read.
    """

    stage: Stage
    pulled: Mapping[str, tuple[Terms, ...]]
    left_out: Collection[int]
    leading: Mapping[str, int]
    sums_after: int = 0

    def write(self) -> list[PlacedKind]:
        """All kinds of the stage."""
        stage = self.stage
        if stage.name == "backward":
            self._pull()
        for place, step in enumerate(stage.places.plan.steps(stage.name)):
            if place not in self.left_out:
                self._step(step, place)
        for one in stage.sums:
            stage.settle(one, [ref for ref in one.unsettled() if stage.is_kept(one, ref, None)])
        return stage.found

    def _pull(self) -> None:
        """Gradients of the function's states, which are sums until somebody reads them."""
        nodes = self.stage.places.plan.nodes
        for state, width in {n.name: n.width for n in nodes if n.op == "state_gradient"}.items():
            out = Ref(gradient_buffer(state), 0, width)
            self.stage.sums.append(Sum(out, [PulledPart(out, self.pulled.get(state, ()))]))

    @singledispatchmethod
    def _step(self, step: Step, place: int) -> None:
        raise TypeError(f"{type(step).__name__} is no step")

    @_step.register
    def _gather(self, step: GatherStep, place: int) -> None:
        """Children are read where they are."""

    @_step.register
    def _scatter_add(self, step: ScatterAddStep, place: int) -> None:
        """Children pull."""

    @_step.register
    def _elementwise(self, step: ElementwiseStep, place: int) -> None:
        write_group(self.stage, step, place)

    @_step.register
    def _operator(self, step: OperatorStep, place: int) -> None:
        write_operator(self.stage, step.node, place)

    @_step.register
    def _softmax_loss(self, step: SoftmaxLossStep, place: int) -> None:
        write_softmax_loss(self.stage, step)

    @_step.register
    def _copy(self, step: CopyStep, place: int) -> None:
        self.stage.need(step.source)
        at = 0
        for columns, width in self.stage.places.pieces(step.source):
            self.stage.stored(Load(columns), step.out.columns(at, width), (step.source,))
            at += width

    @_step.register
    def _matmul(self, step: MatmulStep, place: int) -> None:
        stage = self.stage
        stage.need(step.x)
        shape = parameter_shape(stage.places, step.parameter)
        k = shape[1] if step.transposed else shape[0]
        if step.x.width != k:
            self._matrix_product(step, step.x.width // k)
            return
        one = stage.sum_of(step.out) if step.accumulate else None
        if one is None:
            one = self._begun(step)
        one.parts.append(ProductPart(stage.places, step))
        one.added_at.add(place)
        stage.add(one)

    def _begun(self, step: MatmulStep) -> Sum:
        """A new sum: of nothing, of a bias, or of what another stage left in its place."""
        if step.accumulate:
            self.stage.need(step.out)
            reads: tuple[Ref, ...] = (step.out,)
            return Sum(step.out, [], (Load(self.stage.columns(step.out)), *_bias(step)), reads)
        return Sum(step.out, [], _bias(step))

    def _matrix_product(self, step: MatmulStep, per_row: int) -> None:
        """Of every row of a matrix a vertex."""
        stage = self.stage
        stage.need(step.out)
        leading = parameter_shape(stage.places, step.parameter)[1]
        x, out = stage.columns(step.x), stage.places.out(step.out)
        k, weight = step.x.width // per_row, ParameterOf(step.parameter)
        start = (Load(out),) if step.accumulate else ()
        kind = TileKind(
            step.out.width // per_row,
            sums=(("s0", (*start, *_bias(step))),),
            products=(Product("s0", x, k, weight, leading, 0, 0, step.transposed),),
            stores=(Store(out, "s0"),),
            per_row=per_row,
        )
        reads = (step.x, step.out) if step.accumulate else (step.x,)
        stage.emit(kind, reads=reads, writes=(step.out,), like=step.out)

    @_step.register
    def _pack(self, step: PackStep, place: int) -> None:
        whole = parameter_shape(self.stage.places, step.pack.name)
        n_rows = whole[0] if len(whole) > 1 else 1
        for part, at in step.pack.places():
            kind = CopyKind(
                ParameterOf(part.parameter), self.leading[part.parameter], part.start,
                ParameterOf(step.pack.name), whole[-1], at, n_rows, part.width,
            )  # fmt: skip
            self.stage.emit(kind, reads=(), writes=(), on_edges=False)
        self.stage.written.append((packed(step.pack.name), 0))

    @_step.register
    def _sink(self, step: SinkStep, place: int) -> None:
        """Gradients of parameters, batch by batch; see sums.py for those of a whole mini-batch."""
        stage, plan = self.stage, self.stage.places.plan
        node = plan.nodes[step.node]
        reads = tuple(plan.refs[k] for k in node.inputs if k in plan.refs)
        stage.need(*reads)
        if node.op == "row_sum":
            return
        if stage.name == "backward_lazy":
            self.sums_after = max(self.sums_after, stage.phase_after(*reads))
            return
        for kind in sums_of_step(stage.places, step, whole=False):
            on_edges = stage.places.on_edges(node.inputs[-1])
            stage.emit(kind, reads=reads, writes=(f"d {node.name}",), on_edges=on_edges)


def _bias(step: MatmulStep) -> tuple[Operand, ...]:
    return () if step.bias is None else (LoadParameter(ParameterOf(step.bias), 0),)
