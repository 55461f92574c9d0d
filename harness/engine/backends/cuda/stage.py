"""A stage of one vertex function in the making: kinds, their phases, and what is still a sum.

Kinds of one phase do not read what another of them writes. A product, a sum over edges and a pulled
gradient stay sums of their parts until somebody reads them: position by position, they are added up
in the reader's registers; else they become a kind of their own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from harness.engine.backends.cuda.kinds import (
    Columns,
    Constant,
    Kind,
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
from harness.engine.backends.cuda.places import (
    CONSTANTS,
    READ_THROUGH,
    EdgeSumPart,
    Places,
    Sum,
    inside,
    overlap,
    shown_refs,
)
from harness.engine.backends.cuda.words import ParameterOf, PullOf
from harness.engine.lowering.plan import ElementwiseStep, Operation, Ref, Role, SoftmaxLossStep
from harness.errors import UnsupportedTrial
from harness.vertex.operators import EDGE


@dataclass(frozen=True, slots=True)
class PlacedKind:
    """A kind, the phase of its batch that it belongs to, and what its rows are."""

    kind: Kind
    phase: int
    on_edges: bool


@dataclass(slots=True)
class Stage:
    """Kinds found so far.

    name: of the stage. fuse: whether sums may stay in registers. written: what is in memory, a ref
    or a name of something else, and the phase that wrote it.
    """

    places: Places
    name: str
    fuse: bool
    found: list[PlacedKind] = field(default_factory=list)
    sums: list[Sum] = field(default_factory=list)
    written: list[tuple[Ref | str, int]] = field(default_factory=list)

    def add(self, one: Sum) -> None:
        """Take one more sum; without fusion it is settled at once."""
        if one not in self.sums:
            self.sums.append(one)
        if not self.fuse:
            self.settle(one, one.unsettled())

    def sum_of(self, ref: Ref) -> Sum | None:
        """The sum that can give these columns, the last that was made."""
        for one in reversed(self.sums):
            if inside(ref, one.out) and one.can_give(ref):
                return one
        return None

    def need(self, *refs: Ref) -> None:
        """Bring columns to memory that are still sums."""
        for one in self.sums:
            wanted = [r for r in one.unsettled() if any(overlap(r, ref) for ref in refs)]
            self.settle(one, wanted)

    def settle(self, one: Sum, wanted: Collection[Ref]) -> None:
        """Bring columns of a sum to memory, each by a kind of their own."""
        for ref in wanted:
            terms = one.terms("s0", ref)
            kind = TileKind(
                ref.width,
                sums=(("s0", terms.operands),),
                products=terms.products,
                stores=(Store(self.places.out(ref), "s0"),),
            )
            self.emit(kind, reads=one.reads(ref), writes=(ref,), like=ref)
            one.settled.append(ref)

    def is_kept(self, one: Sum, ref: Ref, reader: int | None) -> bool:
        """Whether others than one step of this stage read columns of a sum, and those adding."""
        plan = self.places.plan
        if ref.buffer.role is Role.STATE:
            return True
        if any(overlap(shown, ref) for shown in shown_refs(plan)):
            return True
        mine = {(self.name, place) for place in (*one.added_at, *one.read_at, reader)}
        return any(
            overlap(reading.ref, ref) and (reading.stage, reading.place) not in mine
            for reading in self.places.readings
        )

    # --- phases ---

    def emit(
        self,
        kind: Kind,
        *,
        reads: Collection[Ref | str],
        writes: Collection[Ref | str],
        like: Ref | None = None,
        on_edges: bool | None = None,
    ) -> None:
        """Add a kind in the first phase in which all is there; like: a ref with its rows."""
        packs = map(packed, parameters_of(kind))
        phase = max(self.phase_after(*packs, *reads), self.phase_after(*writes))
        if on_edges is None:
            assert like is not None
            on_edges = self.places.plan.buffers[like.buffer].domain == EDGE
        self.found.append(PlacedKind(kind, phase, on_edges))
        self.written += [(ref, phase) for ref in writes]

    def phase_after(self, *reads: Ref | str) -> int:
        """The first phase in which all of these are in memory."""
        behind: list[Ref | str] = []
        for ref in reads:
            behind += [ref] if isinstance(ref, str) else self.places.behind(ref)
        phases = (p for ref, p in self.written if any(same_place(ref, one) for one in behind))
        return 1 + max(phases, default=-1)

    def stored(self, operand: Operand, out: Ref, reads: Collection[Ref]) -> None:
        """A kind that copies an operand."""
        store = Store(self.places.out(out), "x0")
        kind = TileKind(out.width, loads=(("x0", operand),), stores=(store,))
        self.emit(kind, reads=reads, writes=(out,), like=out)

    def columns(self, ref: Ref) -> Columns:
        """Where a value lies that can only be read in one place."""
        columns = self.places.piece(ref)
        if columns is None:
            raise UnsupportedTrial("an operator reads a value that lies in several places")
        return columns


def packed(name: str) -> str:
    """What stands for a parameter that steps bring together."""
    return f"parameter {name}"


def same_place(one: Ref | str, other: Ref | str) -> bool:
    """Whether what is there of one is there of the other."""
    if isinstance(one, Ref) and isinstance(other, Ref):
        return overlap(one, other)
    return one == other


def write_group(stage: Stage, step: ElementwiseStep, place: int) -> None:
    """Add the kind of one group."""
    _Group(stage, step, place).write()


@dataclass(slots=True)
class _Group:
    """One kind in the making.

    names: of operands and of columns that are summed up. reads, writes: what it waits for, and what
    is there behind it.
    """

    stage: Stage
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
        operations = []
        for i in self.step.nodes:
            node = plan.nodes[i]
            operands = tuple(self._operand(k, i) for k in node.inputs)
            operations.append(Operation(f"v{i}", node.op, operands, node.value))
            if i in plan.refs:
                self.stores.append(Store(self.stage.places.out(plan.refs[i]), f"v{i}"))
                self.writes.append(plan.refs[i])
        node = plan.nodes[self.step.nodes[0]]
        kind = TileKind(
            node.width, tuple(self.sums), tuple(self.products), tuple(self.loads),
            tuple(operations), tuple(self.stores),
        )  # fmt: skip
        on_edges = self.stage.places.on_edges(self.step.nodes[0])
        self.stage.emit(kind, reads=self.reads, writes=self.writes, on_edges=on_edges)

    def _operand(self, k: int, reader: int) -> str:
        if k in self.step.nodes:
            return f"v{k}"
        plan = self.stage.places.plan
        node, ref = plan.nodes[k], plan.refs.get(k)
        is_value = ref is not None and node.op not in CONSTANTS
        if is_value and ref is not None:
            if ref in self.names:
                return self.names[ref]
            one = self.stage.sum_of(ref)
            if one is not None and self.stage.fuse:
                return self._summed(one, ref)
            self.stage.need(ref)
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
        kept = self.stage.is_kept(one, ref, self.place)
        one.read_at.add(self.place)
        if kept:
            self.stores.append(Store(self.stage.places.out(ref), name))
            self.writes.append(ref)
            one.settled.append(ref)
        return name


MATRIX_FORMS = {form.value: form for form in MatrixForm}


def write_operator(stage: Stage, i: int, place: int) -> None:
    """Add what computes a node, if anything has to."""
    node, refs = stage.places.plan.nodes[i], stage.places.plan.refs
    values = [refs[k] for k in node.inputs if k in refs]
    if node.op == "sum_edges":
        _sum_edges(stage, i, place)
        return
    stage.need(*values)
    if node.op in CONSTANTS:
        if _needs_memory(stage, refs[i]):
            stage.stored(Constant(CONSTANTS[node.op]), refs[i], ())
    elif node.op in READ_THROUGH:
        if not stage.places.is_read_through(i):
            stage.stored(_through_index(stage, i), refs[i], values)
    elif node.op == "expand":
        stage.stored(Load(stage.columns(values[0]), same=True), refs[i], values)
    elif node.op == "sum_elements":
        kind = RowSumKind(stage.columns(values[0]), values[0].width, stage.places.out(refs[i]))
        stage.emit(kind, reads=values, writes=(refs[i],), like=refs[i])
    elif node.op in MATRIX_FORMS:
        _matrix(stage, i, values)
    else:
        _softmax(stage, i, values)


def _needs_memory(stage: Stage, ref: Ref) -> bool:
    """Whether a constant is read other than position by position."""
    plan = stage.places.plan
    if ref.buffer.is_shared or any(overlap(shown, ref) for shown in shown_refs(plan)):
        return True
    readings = [reading for reading in stage.places.readings if overlap(reading.ref, ref)]
    return not all(reading.alone and reading.ref == ref for reading in readings)


def _through_index(stage: Stage, i: int) -> Load:
    """What a lookup or a spread reads, for one that is written all the same."""
    places = stage.places
    is_lookup = places.plan.nodes[i].op == "lookup"
    columns = places.looked_up(i) if is_lookup else places.spread(i)
    if columns is None:
        raise UnsupportedTrial("a value that lies in several places is spread to edges")
    return Load(columns)


def _sum_edges(stage: Stage, i: int, place: int) -> None:
    places = stage.places
    (operand,) = places.plan.nodes[i].inputs
    reads = (places.plan.refs[operand],) if operand in places.plan.refs else ()
    stage.need(*reads)
    out = places.plan.refs[i]
    part = EdgeSumPart(out, places.child_rows(operand), places.type_id, reads)
    stage.add(Sum(out, [part], added_at={place}))


def _matrix(stage: Stage, i: int, values: list[Ref]) -> None:
    node, out = stage.places.plan.nodes[i], stage.places.plan.refs[i]
    x, y = values
    n_columns = out.width // x.width if node.op == "outer" else out.width
    operands = (stage.columns(x), stage.columns(y), stage.places.out(out))
    kind = MatrixKind(MATRIX_FORMS[node.op], *operands, x.width, n_columns)
    stage.emit(kind, reads=values, writes=(out,), like=out)


def _softmax(stage: Stage, i: int, values: list[Ref]) -> None:
    """A loss or its gradient by itself."""
    plan = stage.places.plan
    node, ref = plan.nodes[i], plan.refs[i]
    label = PullOf(stage.places.type_id, plan.nodes[node.inputs[1]].name)
    logits, out = stage.columns(values[0]), stage.places.out(ref)
    if node.op == "pick_neg_log_softmax":
        kind = SoftmaxKind(logits, values[0].width, label, loss=out)
    else:
        dy = _dy(stage, node.inputs[2])
        kind = SoftmaxKind(logits, values[0].width, label, gradient=out, dy=dy)
    stage.emit(kind, reads=values, writes=(ref,), like=ref)


def _dy(stage: Stage, i: int) -> Columns | None:
    """The gradient of a loss; None where it is 1."""
    plan = stage.places.plan
    return None if plan.nodes[i].op == "ones" else stage.columns(plan.refs[i])


def write_softmax_loss(stage: Stage, step: SoftmaxLossStep) -> None:
    """Add the kind of a loss that leaves its gradient in the place of the logits."""
    stage.need(step.logits)
    places = stage.places
    out = places.out(step.logits)
    kind = SoftmaxKind(
        out,
        step.logits.width,
        PullOf(places.type_id, step.label),
        bias=None if step.bias is None else ParameterOf(step.bias),
        loss=places.out(step.loss),
        log_sum=places.out(step.log_sum),
        gradient=out if step.leaves_gradient else None,
        biased=out if step.bias is not None and not step.leaves_gradient else None,
    )
    writes = (step.logits, step.loss, step.log_sum)
    stage.emit(kind, reads=(step.logits,), writes=writes, like=step.logits)
