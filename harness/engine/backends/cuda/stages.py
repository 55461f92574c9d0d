"""One stage of one vertex function as kinds, in phases.

Kinds of one phase do not read what another of them writes. A product, a sum over edges and a pulled
gradient stay sums of their parts until somebody reads them: position by position, they are added up
in the reader's registers; else they become a kind of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod

from harness.engine.backends.cuda.arrays import ParameterOf, PullOf
from harness.engine.backends.cuda.expressions import EXPRESSIONS
from harness.engine.backends.cuda.kinds import (
    Columns,
    Constant,
    CopyKind,
    Kind,
    Line,
    Load,
    LoadParameter,
    MatrixForm,
    MatrixKind,
    Operand,
    Product,
    RowSumKind,
    SoftmaxKind,
    Store,
    TileKind,
    parameters_of,
)
from harness.engine.backends.cuda.parts import (
    EdgeSumPart,
    ProductPart,
    PulledPart,
    Sum,
    Terms,
    parameter_shape,
)
from harness.engine.backends.cuda.places import CONSTANTS, Places, inside, overlap
from harness.engine.backends.cuda.sums import sums_of_step
from harness.engine.lowering.plan import (
    CopyStep,
    ElementwiseStep,
    GatherStep,
    MatmulStep,
    OperatorStep,
    PackStep,
    Ref,
    Role,
    ScatterAddStep,
    SinkStep,
    SoftmaxLossStep,
    Step,
    gradient_buffer,
)
from harness.errors import UnsupportedTrial

MATRIX_FORMS = {form.value: form for form in MatrixForm}


@dataclass(frozen=True, slots=True)
class PlacedKind:
    """A kind, the phase of its batch that it belongs to, and what its rows are."""

    kind: Kind
    phase: int
    on_edges: bool


@dataclass(slots=True)
class StageWriter:
    """Turns the steps of a stage into kinds.

    pulled: what gradients of the function's states are the sums of. left_out: places of steps whose
    products those compute that read them. fuse: whether sums may stay in registers. leading:
    elements between rows of the parameters that packs are made of.
    """

    places: Places
    stage: str
    pulled: Mapping[str, tuple[Terms, ...]]
    left_out: Collection[int]
    fuse: bool
    leading: Mapping[str, int]
    found: list[PlacedKind] = field(default_factory=list)
    sums_after: int = 0  # phases behind which all is there that sums over whole functions read
    _sums: list[Sum] = field(default_factory=list)
    _written: list[tuple[Ref | str, int]] = field(default_factory=list)

    def write(self) -> list[PlacedKind]:
        """All kinds of the stage."""
        plan = self.places.plan
        if self.stage == "backward":
            self._pull()
        for place, step in enumerate(plan.steps(self.stage)):
            if place not in self.left_out:
                self._step(step, place)
        for one in self._sums:
            self._settle(one, [ref for ref in one.unsettled() if self._is_kept(one, ref, None)])
        return self.found

    def _pull(self) -> None:
        plan = self.places.plan
        names = {node.name: node.width for node in plan.nodes if node.op == "state_gradient"}
        for state, width in names.items():
            out = Ref(gradient_buffer(state), 0, width)
            self._sums.append(Sum(out, [PulledPart(out, self.pulled.get(state, ()))]))

    # --- sums ---

    def _sum_of(self, ref: Ref) -> Sum | None:
        """The sum that can give these columns, the last that was made."""
        for one in reversed(self._sums):
            if inside(ref, one.out) and one.can_give(ref):
                return one
        return None

    def _need(self, *refs: Ref) -> None:
        """Bring columns to memory that are still sums."""
        for one in self._sums:
            wanted = [r for r in one.unsettled() if any(overlap(r, ref) for ref in refs)]
            self._settle(one, wanted)

    def _settle(self, one: Sum, wanted: list[Ref]) -> None:
        for ref in wanted:
            terms = one.terms("s0", ref)
            kind = TileKind(
                ref.width,
                sums=(("s0", terms.operands),),
                products=terms.products,
                stores=(Store(self.places.out(ref), "s0"),),
            )
            self._emit(kind, reads=one.reads(ref), writes=(ref,), like=ref)
            one.settled.append(ref)

    def _is_kept(self, one: Sum, ref: Ref, reader: int | None) -> bool:
        """Whether others than one step of this stage read columns of a sum, and those adding."""
        plan = self.places.plan
        if ref.buffer.role is Role.STATE:
            return True
        shown = [*plan.pushes, *(() if plan.loss is None else (plan.loss,))]
        if any(k in plan.refs and overlap(plan.refs[k], ref) for k in shown):
            return True
        mine = {(self.stage, place) for place in (*one.added_at, *one.read_at, reader)}
        return any(
            overlap(reading.ref, ref) and (reading.stage, reading.place) not in mine
            for reading in self.places.readings
        )

    # --- phases ---

    def _emit(
        self,
        kind: Kind,
        *,
        reads: Collection[Ref | str],
        writes: Collection[Ref | str],
        like: Ref | None = None,
        on_edges: bool | None = None,
    ) -> None:
        """Add a kind in the first phase in which all is there; like: a ref with its rows."""
        packs = map(_packed, parameters_of(kind))
        behind = [*packs, *(r for ref in reads for r in self._behind(ref))]
        before = [
            phase
            for written, phase in self._written
            if any(_same_place(written, ref) for ref in (*behind, *writes))
        ]
        phase = 1 + max(before, default=-1)
        if on_edges is None:
            assert like is not None
            on_edges = self.places.plan.buffers[like.buffer].domain == "edge"
        self.found.append(PlacedKind(kind, phase, on_edges))
        self._written += [(ref, phase) for ref in writes]

    def _behind(self, ref: Ref | str) -> list[Ref | str]:
        return [ref] if isinstance(ref, str) else [*self.places.behind(ref)]

    # --- steps ---

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
    def _matmul(self, step: MatmulStep, place: int) -> None:
        self._need(step.x)
        shape = parameter_shape(self.places, step.parameter)
        k = shape[1] if step.transposed else shape[0]
        if step.x.width != k:
            self._matrix_product(step, step.x.width // k)
            return
        part = ProductPart(self.places, step)
        one = self._sum_of(step.out) if step.accumulate else None
        if one is None:
            one = self._begun(step)
            self._sums.append(one)
        one.parts.append(part)
        one.added_at.add(place)
        if not self.fuse:
            self._settle(one, one.unsettled())

    def _begun(self, step: MatmulStep) -> Sum:
        """A new sum: of nothing, of a bias, or of what another stage left in its place."""
        start: list[Operand] = []
        reads: list[Ref] = []
        if step.accumulate:
            self._need(step.out)
            columns = self.places.piece(step.out)
            assert columns is not None
            start, reads = [Load(columns)], [step.out]
        if step.bias is not None:
            start.append(LoadParameter(ParameterOf(step.bias), 0))
        return Sum(step.out, [], tuple(start), tuple(reads))

    def _matrix_product(self, step: MatmulStep, per_row: int) -> None:
        """Of every row of a matrix a vertex."""
        self._need(step.out)
        columns = self.places.piece(step.x)
        if columns is None:
            raise UnsupportedTrial("a product of a matrix that lies in several places")
        leading = parameter_shape(self.places, step.parameter)[1]
        k, width = step.x.width // per_row, step.out.width // per_row
        weight, out = ParameterOf(step.parameter), self.places.out(step.out)
        start: list[Operand] = [Load(out)] if step.accumulate else []
        if step.bias is not None:
            start.append(LoadParameter(ParameterOf(step.bias), 0))
        kind = TileKind(
            width,
            sums=(("s0", tuple(start)),),
            products=(Product("s0", columns, k, weight, leading, 0, 0, step.transposed),),
            stores=(Store(out, "s0"),),
            per_row=per_row,
        )
        reads = (step.x, step.out) if step.accumulate else (step.x,)
        self._emit(kind, reads=reads, writes=(step.out,), like=step.out)

    @_step.register
    def _elementwise(self, step: ElementwiseStep, place: int) -> None:
        _Group(self, step, place).write()

    @_step.register
    def _copy(self, step: CopyStep, place: int) -> None:
        self._need(step.source)
        self._copied(step.source, step.out)

    def _copied(self, source: Ref, out: Ref) -> None:
        at = 0
        for columns, width in self.places.pieces(source):
            self._stored(Load(columns), out.columns(at, width), (source,))
            at += width

    def _stored(self, operand: Operand, out: Ref, reads: tuple[Ref, ...]) -> None:
        store = Store(self.places.out(out), "x0")
        kind = TileKind(out.width, loads=(("x0", operand),), stores=(store,))
        self._emit(kind, reads=reads, writes=(out,), like=out)

    @_step.register
    def _pack(self, step: PackStep, place: int) -> None:
        whole = parameter_shape(self.places, step.pack.name)
        for part, at in step.pack.places():
            leading = self.leading[part.parameter]
            kind = CopyKind(
                ParameterOf(part.parameter), leading, part.start,
                ParameterOf(step.pack.name), whole[-1], at,
                whole[0] if len(whole) > 1 else 1, part.width,
            )  # fmt: skip
            self._emit(kind, reads=(), writes=(), on_edges=False)
        self._written.append((_packed(step.pack.name), 0))

    @_step.register
    def _sink(self, step: SinkStep, place: int) -> None:
        """Gradients of parameters, batch by batch; see sums.py for those of a whole mini-batch."""
        node = self.places.plan.nodes[step.node]
        reads = tuple(self.places.plan.refs[k] for k in node.inputs if k in self.places.plan.refs)
        self._need(*reads)
        if node.op == "row_sum":
            return
        if self.stage == "backward_lazy":
            behind = [r for ref in reads for r in self._behind(ref)]
            before = [p for ref, p in self._written if any(_same_place(ref, r) for r in behind)]
            self.sums_after = max(self.sums_after, *(p + 1 for p in before), 0)
            return
        for kind in sums_of_step(self.places, step, whole=False):
            on_edges = self.places.on_edges(node.inputs[-1])
            self._emit(kind, reads=reads, writes=(f"d {node.name}",), on_edges=on_edges)

    @_step.register
    def _softmax_loss(self, step: SoftmaxLossStep, place: int) -> None:
        self._need(step.logits)
        out = self.places.out(step.logits)
        kind = SoftmaxKind(
            out,
            step.logits.width,
            PullOf(self.places.type_id, step.label),
            bias=None if step.bias is None else ParameterOf(step.bias),
            loss=self.places.out(step.loss),
            log_sum=self.places.out(step.log_sum),
            gradient=out if step.leaves_gradient else None,
            biased=out if step.bias is not None and not step.leaves_gradient else None,
        )
        writes = (step.logits, step.loss, step.log_sum)
        self._emit(kind, reads=(step.logits,), writes=writes, like=step.logits)

    @_step.register
    def _operator(self, step: OperatorStep, place: int) -> None:
        i = step.node
        node, refs = self.places.plan.nodes[i], self.places.plan.refs
        values = [refs[k] for k in node.inputs if k in refs]
        if node.op == "sum_edges":
            self._sum_edges(i, place)
            return
        self._need(*values)
        if node.op in CONSTANTS:
            if self._needs_memory(refs[i]):
                self._stored(Constant(CONSTANTS[node.op]), refs[i], ())
        elif node.op in ("lookup", "spread"):
            if not self.places.is_read_through(i):
                self._stored(self._through_index(i), refs[i], tuple(values))
        elif node.op == "expand":
            self._stored(Load(self._columns(values[0]), same=True), refs[i], tuple(values))
        elif node.op == "sum_elements":
            kind = RowSumKind(self._columns(values[0]), values[0].width, self.places.out(refs[i]))
            self._emit(kind, reads=values, writes=(refs[i],), like=refs[i])
        elif node.op in MATRIX_FORMS:
            self._matrix(i, values)
        else:
            self._softmax(i, values)

    def _needs_memory(self, ref: Ref) -> bool:
        """Whether a constant is read other than position by position."""
        readings = [r for r in self.places.readings if overlap(r.ref, ref)]
        shown = [self.places.plan.refs.get(k) for k in self.places.plan.pushes]
        if ref.buffer.is_shared or any(one is not None and overlap(one, ref) for one in shown):
            return True
        return not all(r.alone and r.ref == ref for r in readings)

    def _through_index(self, i: int) -> Load:
        """What a lookup or a spread reads, for one that is written all the same."""
        is_lookup = self.places.plan.nodes[i].op == "lookup"
        columns = self.places.looked_up(i) if is_lookup else self.places.spread(i)
        if columns is None:
            raise UnsupportedTrial("a value that lies in several places is spread to edges")
        return Load(columns)

    def _columns(self, ref: Ref) -> Columns:
        columns = self.places.piece(ref)
        if columns is None:
            raise UnsupportedTrial("an operator reads a value that lies in several places")
        return columns

    def _sum_edges(self, i: int, place: int) -> None:
        plan = self.places.plan
        (operand,) = plan.nodes[i].inputs
        reads = (plan.refs[operand],) if operand in plan.refs else ()
        self._need(*reads)
        of = self.places.child_rows(operand)
        part = EdgeSumPart(plan.refs[i], of, self.places.type_id, reads)
        one = Sum(plan.refs[i], [part], added_at={place})
        self._sums.append(one)
        if not self.fuse:
            self._settle(one, one.unsettled())

    def _matrix(self, i: int, values: list[Ref]) -> None:
        node, out = self.places.plan.nodes[i], self.places.plan.refs[i]
        x, y = values
        n_columns = out.width // x.width if node.op == "outer" else out.width
        kind = MatrixKind(
            MATRIX_FORMS[node.op],
            self._columns(x),
            self._columns(y),
            self.places.out(out),
            x.width,
            n_columns,
        )
        self._emit(kind, reads=values, writes=(out,), like=out)

    def _softmax(self, i: int, values: list[Ref]) -> None:
        """A loss or its gradient by itself."""
        node, out = self.places.plan.nodes[i], self.places.plan.refs[i]
        label = PullOf(self.places.type_id, self.places.plan.nodes[node.inputs[1]].name)
        logits = self._columns(values[0])
        if node.op == "pick_neg_log_softmax":
            kind = SoftmaxKind(logits, values[0].width, label, loss=self.places.out(out))
        else:
            dy = self._dy(node.inputs[2])
            gradient = self.places.out(out)
            kind = SoftmaxKind(logits, values[0].width, label, gradient=gradient, dy=dy)
        self._emit(kind, reads=values, writes=(out,), like=out)

    def _dy(self, i: int) -> Columns | None:
        """The gradient of a loss; None where it is 1."""
        if self.places.plan.nodes[i].op == "ones":
            return None
        return self._columns(self.places.plan.refs[i])


@dataclass(slots=True)
class _Group:
    """A group of elementwise operators, as one kind together with the sums that it reads."""

    stage: StageWriter
    step: ElementwiseStep
    place: int
    names: dict[Operand | Ref, str] = field(default_factory=dict)
    loads: list[tuple[str, Operand]] = field(default_factory=list)
    sums: list[tuple[str, tuple[Operand, ...]]] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    reads: list[Ref] = field(default_factory=list)
    writes: list[Ref] = field(default_factory=list)

    def write(self) -> None:
        plan = self.stage.places.plan
        lines = []
        for i in self.step.nodes:
            node = plan.nodes[i]
            operands = [self._operand(k, i) for k in node.inputs]
            text = EXPRESSIONS[node.op].format(
                *operands, value=node.value, sum=" + ".join(operands)
            )
            lines.append(Line(f"v{i}", text))
            if i in plan.refs:
                self.stores.append(Store(self.stage.places.out(plan.refs[i]), f"v{i}"))
                self.writes.append(plan.refs[i])
        node = plan.nodes[self.step.nodes[0]]
        kind = TileKind(
            node.width, tuple(self.sums), tuple(self.products), tuple(self.loads), tuple(lines),
            tuple(self.stores),
        )  # fmt: skip
        on_edges = self.stage.places.on_edges(self.step.nodes[0])
        self.stage._emit(kind, reads=self.reads, writes=self.writes, on_edges=on_edges)

    def _operand(self, k: int, reader: int) -> str:
        if k in self.step.nodes:
            return f"v{k}"
        plan = self.stage.places.plan
        node, ref = plan.nodes[k], plan.refs.get(k)
        is_value = ref is not None and node.op not in CONSTANTS
        if is_value and ref is not None:
            if ref in self.names:
                return self.names[ref]
            one = self.stage._sum_of(ref)
            if one is not None and self.stage.fuse:
                return self._summed(one, ref)
            self.stage._need(ref)
            self.reads.append(ref)
        operand = self.stage.places.operand(k, plan.nodes[reader].index)
        if operand is None:
            raise UnsupportedTrial(f"{plan.name} reads several children as one value")
        if isinstance(operand, LoadParameter) and len(plan.nodes[reader].shape) > 1:
            operand = replace(operand, period=plan.nodes[reader].shape[-1])
        if operand not in self.names:
            self.names[operand] = f"x{len(self.loads)}"
            self.loads.append((self.names[operand], operand))
        return self.names[operand]

    def _summed(self, one: Sum, ref: Ref) -> str:
        name = self.names[ref] = f"s{len(self.sums)}"
        terms = one.terms(name, ref)
        self.sums.append((name, terms.operands))
        self.products += terms.products
        self.reads += one.reads(ref)
        kept = self.stage._is_kept(one, ref, self.place)
        one.read_at.add(self.place)
        if kept:
            self.stores.append(Store(self.stage.places.out(ref), name))
            self.writes.append(ref)
            one.settled.append(ref)
        return name


def _packed(name: str) -> str:
    """What stands for a parameter that steps bring together."""
    return f"parameter {name}"


def _same_place(one: Ref | str, other: Ref | str) -> bool:
    if isinstance(one, Ref) and isinstance(other, Ref):
        return overlap(one, other)
    return one == other
