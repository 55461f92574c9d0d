"""Conversion of one stage of a vertex function: kinds, their phases, and pending sums.

Kinds of one phase do not read values that another kind of it writes. A product, a sum over edges or
a pulled gradient remains a sum of parts until a step reads it. A step that reads position by
position computes it in registers; otherwise it becomes a kind of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from dynbatch.harness.engine.backends.cuda.kinds import (
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
    find_parameters,
)
from dynbatch.harness.engine.backends.cuda.places import (
    CONSTANTS,
    READ_THROUGH,
    EdgeSumPart,
    Places,
    Sum,
)
from dynbatch.harness.engine.backends.cuda.words import ParameterOf, PullOf
from dynbatch.harness.engine.lowering.plan import (
    ElementwiseStep,
    Operation,
    Ref,
    Role,
    SoftmaxLossStep,
)
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.vertex.operators import EDGE


@dataclass(frozen=True, slots=True)
class PlacedKind:
    """Kind, its phase in a batch, and whether its rows are edges."""

    kind: Kind
    phase: int
    on_edges: bool


@dataclass(slots=True)
class Stage:
    """Kinds of a stage, as far as they are known.

    Attributes:
        written: refs (or names of other data) in memory, and the phases that wrote them.
    """

    places: Places
    name: str
    fuse: bool
    placed_kinds: list[PlacedKind] = field(default_factory=list)
    sums: list[Sum] = field(default_factory=list)
    written: list[tuple[Ref | str, int]] = field(default_factory=list)

    def add(self, pending: Sum) -> None:
        """Add a sum; without fusion, compute it immediately."""
        if pending not in self.sums:
            self.sums.append(pending)
        if not self.fuse:
            self.settle(pending, pending.list_unsettled())

    def find_sum(self, ref: Ref) -> Sum | None:
        """Return the last sum that can compute these columns."""
        for pending in reversed(self.sums):
            if ref.is_inside(pending.out) and pending.can_give(ref):
                return pending
        return None

    def need(self, *refs: Ref) -> None:
        """Compute all pending sums that overlap these columns."""
        for pending in self.sums:
            unsettled = pending.list_unsettled()
            self.settle(pending, [r for r in unsettled if any(map(r.has_overlap, refs))])

    def settle(self, pending: Sum, wanted: Collection[Ref]) -> None:
        """Add one kind for each of these columns of a sum, which writes them to memory."""
        for ref in wanted:
            terms = pending.build_terms("s0", ref)
            kind = TileKind(
                ref.width,
                sums=(("s0", terms.operands),),
                products=terms.products,
                stores=(Store(self.places.locate_own(ref), "s0"),),
            )
            self.emit(kind, reads=pending.list_reads(ref), writes=(ref,))
            pending.settled.append(ref)

    def is_kept(self, pending: Sum, ref: Ref, reader: int | None) -> bool:
        """Return whether columns of a sum have to be written to memory.

        They have to if they are states, pushed values or losses, or if other steps read them.

        Args:
            reader: index of the step that is about to read them in registers; None: no step.
        """
        plan = self.places.plan
        if ref.buffer.role is Role.STATE:
            return True
        if any(shown.has_overlap(ref) for shown in plan.list_shown_refs()):
            return True
        mine = {(self.name, index) for index in (*pending.added_at, *pending.read_at, reader)}
        return any(
            reading.ref.has_overlap(ref) and (reading.stage, reading.step_index) not in mine
            for reading in self.places.readings
        )

    # --- phases ---

    def emit(
        self,
        kind: Kind,
        *,
        reads: Collection[Ref | str],
        writes: Sequence[Ref | str],
        on_edges: bool | None = None,
    ) -> None:
        """Add a kind to the first phase in which all of its inputs are in memory.

        Args:
            on_edges: whether its rows are edges; None: they are those of the first ref that it
                writes.
        """
        packs = map(name_pack, find_parameters(kind))
        phase = max(self.find_phase(*packs, *reads), self.find_phase(*writes))
        if on_edges is None:
            assert isinstance(writes[0], Ref)
            on_edges = self.places.plan.buffers[writes[0].buffer].domain == EDGE
        self.placed_kinds.append(PlacedKind(kind, phase, on_edges))
        self.written += [(ref, phase) for ref in writes]

    def find_phase(self, *reads: Ref | str) -> int:
        """Return the first phase in which all of these are in memory."""
        behind: list[Ref | str] = []
        for ref in reads:
            behind += [ref] if isinstance(ref, str) else self.places.list_dependencies(ref)
        phases = (
            p
            for ref, p in self.written
            if any(is_same_location(ref, dependency) for dependency in behind)
        )
        return 1 + max(phases, default=-1)

    def store_operand(self, operand: Operand, out: Ref, reads: Collection[Ref]) -> None:
        """Add a kind that copies an operand to memory."""
        store = Store(self.places.locate_own(out), "x0")
        kind = TileKind(out.width, loads=(("x0", operand),), stores=(store,))
        self.emit(kind, reads=reads, writes=(out,))

    def locate_columns(self, ref: Ref) -> Columns:
        """Return the location of a value that must have only one.

        Raises:
            UnsupportedTrial: the value has several locations.
        """
        columns = self.places.find_piece(ref)
        if columns is None:
            raise UnsupportedTrial(
                "an operator reads a value that is not contiguous; use backend=stepwise"
            )
        return columns


def name_pack(name: str) -> str:
    """Return the name of a packed parameter in Stage.written."""
    return f"parameter {name}"


def is_same_location(first: Ref | str, other: Ref | str) -> bool:
    """Return whether two refs overlap, or two names are equal."""
    if isinstance(first, Ref) and isinstance(other, Ref):
        return first.has_overlap(other)
    return first == other


@dataclass(slots=True)
class GroupBuilder:
    """Kind of one group of elementwise operators, while it is built.

    Attributes:
        names: names of operands, and of columns that are sums.
        reads: refs that must be in memory first.
        writes: refs that are in memory afterwards.
    """

    stage: Stage
    step: ElementwiseStep
    step_index: int
    names: dict[Operand | Ref, str] = field(default_factory=dict)
    loads: list[tuple[str, Operand]] = field(default_factory=list)
    sums: list[tuple[str, tuple[Operand, ...]]] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    reads: list[Ref] = field(default_factory=list)
    writes: list[Ref] = field(default_factory=list)

    def write(self) -> None:
        """Add the kind to the stage."""
        plan = self.stage.places.plan
        operations = []
        for i in self.step.nodes:
            node = plan.nodes[i]
            operands = tuple(self._name_operand(k, i) for k in node.inputs)
            operations.append(Operation(f"v{i}", node.op, operands, node.value))
            if i in plan.refs:
                self.stores.append(Store(self.stage.places.locate_own(plan.refs[i]), f"v{i}"))
                self.writes.append(plan.refs[i])
        node = plan.nodes[self.step.nodes[0]]
        kind = TileKind(
            node.width, tuple(self.sums), tuple(self.products), tuple(self.loads),
            tuple(operations), tuple(self.stores),
        )  # fmt: skip
        on_edges = self.stage.places.is_on_edges(self.step.nodes[0])
        self.stage.emit(kind, reads=self.reads, writes=self.writes, on_edges=on_edges)

    def _name_operand(self, k: int, reader: int) -> str:
        if k in self.step.nodes:
            return f"v{k}"
        plan = self.stage.places.plan
        node, ref = plan.nodes[k], plan.refs.get(k)
        is_value = ref is not None and node.op not in CONSTANTS
        if is_value and ref is not None:
            if ref in self.names:
                return self.names[ref]
            pending = self.stage.find_sum(ref)
            if pending is not None and self.stage.fuse:
                return self._inline_sum(pending, ref)
            self.stage.need(ref)
            self.reads.append(ref)
        operand = self.stage.places.make_operand(k, plan.nodes[reader].index)
        if operand is None:
            raise UnsupportedTrial(
                f"{plan.name} reads several children as one value; use backend=stepwise"
            )
        if isinstance(operand, LoadParameter) and len(plan.nodes[reader].shape) > 1:
            operand = replace(operand, period=plan.nodes[reader].shape[-1])
        if operand not in self.names:
            self.names[operand] = f"x{len(self.loads)}"
            self.loads.append((self.names[operand], operand))
        return self.names[operand]

    def _inline_sum(self, pending: Sum, ref: Ref) -> str:
        name = self.names[ref] = f"s{len(self.sums)}"
        terms = pending.build_terms(name, ref)
        self.sums.append((name, terms.operands))
        self.products += terms.products
        self.reads += pending.list_reads(ref)
        kept = self.stage.is_kept(pending, ref, self.step_index)
        pending.read_at.add(self.step_index)
        if kept:
            self.stores.append(Store(self.stage.places.locate_own(ref), name))
            self.writes.append(ref)
            pending.settled.append(ref)
        return name


MATRIX_FORMS = {form.value: form for form in MatrixForm}


def write_operator(stage: Stage, i: int, index: int) -> None:
    """Add the kind that computes a node, if one is needed."""
    node, refs = stage.places.plan.nodes[i], stage.places.plan.refs
    values = [refs[k] for k in node.inputs if k in refs]
    if node.op == "sum_edges":
        _sum_edges(stage, i, index)
        return
    stage.need(*values)
    if node.op in CONSTANTS:
        if _needs_memory(stage, refs[i]):
            stage.store_operand(Constant(CONSTANTS[node.op]), refs[i], ())
    elif node.op in READ_THROUGH:
        if not stage.places.is_read_through(i):
            stage.store_operand(_make_indexed_load(stage, i), refs[i], values)
    elif node.op == "expand":
        stage.store_operand(Load(stage.locate_columns(values[0]), same=True), refs[i], values)
    elif node.op == "sum_elements":
        kind = RowSumKind(
            stage.locate_columns(values[0]), values[0].width, stage.places.locate_own(refs[i])
        )
        stage.emit(kind, reads=values, writes=(refs[i],))
    elif node.op in MATRIX_FORMS:
        _write_matrix(stage, i, values)
    else:
        _write_softmax(stage, i, values)


def _needs_memory(stage: Stage, ref: Ref) -> bool:
    """Return whether a constant must be in memory, because a read is not position by position."""
    plan = stage.places.plan
    if ref.buffer.is_shared or any(shown.has_overlap(ref) for shown in plan.list_shown_refs()):
        return True
    readings = [reading for reading in stage.places.readings if reading.ref.has_overlap(ref)]
    return not all(reading.alone and reading.ref == ref for reading in readings)


def _make_indexed_load(stage: Stage, i: int) -> Load:
    """Return the indexed read of a lookup or spread whose result is written nonetheless.

    Raises:
        UnsupportedTrial: the value that is spread has several locations.
    """
    places = stage.places
    is_lookup = places.plan.nodes[i].op == "lookup"
    columns = places.locate_table_rows(i) if is_lookup else places.locate_spread(i)
    if columns is None:
        raise UnsupportedTrial("cannot spread a value that is not contiguous; use backend=stepwise")
    return Load(columns)


def _sum_edges(stage: Stage, i: int, index: int) -> None:
    places = stage.places
    (operand,) = places.plan.nodes[i].inputs
    reads = (places.plan.refs[operand],) if operand in places.plan.refs else ()
    stage.need(*reads)
    out = places.plan.refs[i]
    part = EdgeSumPart(out, places.locate_child_rows(operand), places.type_id, reads)
    stage.add(Sum(out, [part], added_at={index}))


def _write_matrix(stage: Stage, i: int, values: list[Ref]) -> None:
    node, out = stage.places.plan.nodes[i], stage.places.plan.refs[i]
    x, y = values
    n_columns = out.width // x.width if node.op == "outer" else out.width
    operands = (stage.locate_columns(x), stage.locate_columns(y), stage.places.locate_own(out))
    kind = MatrixKind(MATRIX_FORMS[node.op], *operands, x.width, n_columns)
    stage.emit(kind, reads=values, writes=(out,))


def _write_softmax(stage: Stage, i: int, values: list[Ref]) -> None:
    """Add the kind of a separate softmax loss, or of its gradient."""
    plan = stage.places.plan
    node, ref = plan.nodes[i], plan.refs[i]
    label = PullOf(stage.places.type_id, plan.nodes[node.inputs[1]].name)
    logits, out = stage.locate_columns(values[0]), stage.places.locate_own(ref)
    if node.op == "pick_neg_log_softmax":
        kind = SoftmaxKind(logits, values[0].width, label, loss=out)
    else:
        dy = _locate_loss_gradient(stage, node.inputs[2])
        kind = SoftmaxKind(logits, values[0].width, label, gradient=out, dy=dy)
    stage.emit(kind, reads=values, writes=(ref,))


def _locate_loss_gradient(stage: Stage, i: int) -> Columns | None:
    """Return the location of the gradient of a loss; None if it is 1."""
    plan = stage.places.plan
    return None if plan.nodes[i].op == "ones" else stage.locate_columns(plan.refs[i])


def write_softmax_loss(stage: Stage, step: SoftmaxLossStep) -> None:
    """Add the kind of a softmax loss, whose gradient may overwrite the logits."""
    stage.need(step.logits)
    places = stage.places
    out = places.locate_own(step.logits)
    kind = SoftmaxKind(
        out,
        step.logits.width,
        PullOf(places.type_id, step.label),
        bias=None if step.bias is None else ParameterOf(step.bias),
        loss=places.locate_own(step.loss),
        log_sum=places.locate_own(step.log_sum),
        gradient=out if step.leaves_gradient else None,
        biased=out if step.bias is not None and not step.leaves_gradient else None,
    )
    writes = (step.logits, step.loss, step.log_sum)
    stage.emit(kind, reads=(step.logits,), writes=writes)
