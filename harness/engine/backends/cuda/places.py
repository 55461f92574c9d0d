"""Locations on the device of the values of one vertex function.

Children's states, looked-up rows and values spread to edges are never copied: they are read in
place, through an index. Every other value has the columns that its plan assigns to it, in a buffer
with one row per row of the function, so that no value is overwritten before it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from dynbatch.harness.engine.backends.cuda.kinds import (
    Base,
    Columns,
    Constant,
    Load,
    LoadParameter,
    Operand,
    Product,
    Row,
    RowList,
)
from dynbatch.harness.engine.backends.cuda.words import (
    BufferOf,
    ChildOf,
    Composed,
    EdgeStartOf,
    FloatArray,
    OwnerOf,
    ParameterOf,
    PullOf,
    StateRowOf,
    TransposedOf,
)
from dynbatch.harness.engine.lowering.plan import (
    SHARED,
    STAGES,
    ElementwiseStep,
    MatmulStep,
    MemoryKind,
    OperatorStep,
    Plan,
    Ref,
    count_slots,
    name_state_buffer,
)
from dynbatch.harness.vertex.operators import EDGE

CONSTANTS = {"zeros": 0.0, "ones": 1.0}
# Operators whose result kernels derive from the operand at each read.
READ_THROUGH = ("lookup", "spread")
Piece = tuple[Columns, int]  # columns, and their number


@dataclass(frozen=True, slots=True)
class Reading:
    """Columns that a step reads from memory.

    Attributes:
        alone: whether the step reads position by position, so that constants need no memory.
    """

    stage: str
    step_index: int
    ref: Ref
    alone: bool


@dataclass(frozen=True, slots=True)
class _ReadThrough:
    """Columns that are never written, because they are read from elsewhere.

    Attributes:
        of: value that must be in memory first; None: no value.
    """

    ref: Ref
    columns: Columns
    of: Ref | None


@dataclass(slots=True)
class Places:
    """Locations of the values of one plan."""

    type_id: int
    plan: Plan
    readings: list[Reading] = field(init=False)
    _read_through: list[_ReadThrough] = field(init=False)

    def __post_init__(self) -> None:
        self.readings = [
            Reading(stage, index, ref, isinstance(step, ElementwiseStep))
            for stage in STAGES
            for index, step in enumerate(self.plan.steps[stage])
            for ref in self.plan.list_reads(step)
        ]
        self._read_through = []
        for stage in STAGES:
            for step in self.plan.steps[stage]:
                if isinstance(step, OperatorStep) and self.plan.nodes[step.node].op in READ_THROUGH:
                    self._try_to_read_through(step.node)

    # --- memory ---

    def locate_own(self, ref: Ref) -> Columns:
        """Return the location of a ref's own columns."""
        buffer = self.plan.buffers[ref.buffer]
        in_states = buffer.memory in (MemoryKind.STATE, MemoryKind.GRADIENT)
        array = BufferOf(SHARED if ref.buffer.is_shared else self.type_id, ref.buffer)
        return Columns(array, Row(Base.STATES if in_states else Base.ROWS), buffer.width, ref.start)

    def list_pieces(self, ref: Ref) -> list[Piece]:
        """Return the locations from which a ref is read, in order of its columns."""
        if ref.buffer.is_gathered:
            return self._list_child_pieces(ref)
        pieces: list[Piece] = []
        at, end = ref.start, ref.end
        for entry in sorted(self._read_through, key=lambda entry: entry.ref.start):
            if not entry.ref.has_overlap(ref):
                continue
            if at < entry.ref.start:
                pieces.append((self.locate_own(Ref(ref.buffer, at, 1)), entry.ref.start - at))
                at = entry.ref.start
            width = min(entry.ref.end, end) - at
            pieces.append((entry.columns.shift(at - entry.ref.start), width))
            at += width
        if at < end:
            pieces.append((self.locate_own(Ref(ref.buffer, at, 1)), end - at))
        return pieces

    def find_piece(self, ref: Ref) -> Columns | None:
        """Return the location from which a ref is read; None if there are several."""
        pieces = self.list_pieces(ref)
        return pieces[0][0] if len(pieces) == 1 else None

    def _list_child_pieces(self, ref: Ref) -> list[Piece]:
        slots = self.plan.find_gathered_slots(ref.buffer)
        n_slots = count_slots(slots)
        width = self.plan.buffers[ref.buffer].width // n_slots
        array = BufferOf(SHARED, name_state_buffer(ref.buffer.of))
        pieces, at = [], ref.start
        while at < ref.end:
            slot, column = divmod(at, width)
            row = Row(through=ChildOf(self.type_id, slots), stride=n_slots, at=slot)
            n_columns = min(width - column, ref.end - at)
            pieces.append((Columns(array, row, width, column), n_columns))
            at += n_columns
        return pieces

    # --- operands ---

    def make_operand(self, i: int, first_column: int = 0) -> Operand | None:
        """Return the operand for reading a value position by position.

        Args:
            first_column: first element to read of a vector that is added to every row.

        Returns:
            The operand; None if the value has several locations.
        """
        node = self.plan.nodes[i]
        if node.op in CONSTANTS:
            return Constant(CONSTANTS[node.op])
        if node.op == "parameter":
            return LoadParameter(ParameterOf(node.name), first_column)
        if node.op in ("gather", "gather_each") and i not in self.plan.refs:
            return Load(self._locate_child(i))
        columns = self.find_piece(self.plan.refs[i])
        return None if columns is None else Load(columns)

    def _locate_child(self, i: int) -> Columns:
        """Return the location of a child's state, read in place."""
        node = self.plan.nodes[i]
        slots = None if node.op == "gather_each" else self.plan.slots[node.name]
        at = 0 if slots is None else slots.index(node.index)
        row = Row(through=ChildOf(self.type_id, slots), stride=count_slots(slots), at=at)
        return Columns(BufferOf(SHARED, name_state_buffer(node.name)), row, node.width, 0)

    def locate_child_rows(self, i: int) -> Columns:
        """Return the location of the states of all children, one row per edge."""
        if i in self.plan.refs:
            columns = self.find_piece(self.plan.refs[i])
            assert columns is not None
            return columns
        return self._locate_child(i)

    # --- values read through an index ---

    def is_read_through(self, i: int) -> bool:
        """Return whether the result of an operator is never written."""
        return any(entry.ref == self.plan.refs[i] for entry in self._read_through)

    def list_dependencies(self, ref: Ref) -> list[Ref]:
        """Return the refs that must be in memory before a ref is read, including itself."""
        others = [entry.of for entry in self._read_through if entry.ref.has_overlap(ref)]
        return [
            ref,
            *(
                other
                for source in others
                if source is not None
                for other in self.list_dependencies(source)
            ),
        ]

    def _try_to_read_through(self, i: int) -> None:
        ref, node = self.plan.refs[i], self.plan.nodes[i]
        kept = self.plan.list_shown_refs()
        if ref.buffer.is_shared or any(ref.has_overlap(other) for other in kept):
            return
        read = [reading.ref for reading in self.readings if reading.ref.has_overlap(ref)]
        if any(not other.is_inside(ref) for other in read) or self._is_added_to(ref):
            return
        columns = self.locate_table_rows(i) if node.op == "lookup" else self.locate_spread(i)
        if columns is not None:
            source = None if node.op == "lookup" else self.plan.refs.get(node.inputs[0])
            self._read_through.append(_ReadThrough(ref, columns, source))

    def _is_added_to(self, ref: Ref) -> bool:
        steps = (step for stage in STAGES for step in self.plan.steps[stage])
        products = (step for step in steps if isinstance(step, MatmulStep))
        return any(step.accumulate and step.out.has_overlap(ref) for step in products)

    def locate_table_rows(self, i: int) -> Columns:
        """Return the location of the table rows that a lookup reads."""
        table, pulled = (self.plan.nodes[k] for k in self.plan.nodes[i].inputs)
        row = Row(through=PullOf(self.type_id, pulled.name))
        return Columns(ParameterOf(table.name), row, table.shape[1], 0)

    def locate_spread(self, i: int) -> Columns | None:
        """Return the location of a vertex value for every edge; None if it has several."""
        (x,) = self.plan.nodes[i].inputs
        columns = (
            self.find_piece(self.plan.refs[x]) if x in self.plan.refs else self._locate_child(x)
        )
        if columns is None or not isinstance(columns.row, Row):
            return None
        row = columns.row
        owner = OwnerOf(self.type_id, in_states=row.base is Base.STATES)
        through = owner if row.through is None else Composed(owner, row.through, row.stride, row.at)
        return replace(columns, row=Row(through=through))

    # --- rows of whole functions ---

    def select_all_rows(self, columns: Columns) -> Columns:
        """Return the same columns, with states addressed by all rows of the function."""
        if columns.row == Row(Base.STATES):
            row = Row(through=StateRowOf(self.type_id))
            return Columns(columns.array, row, columns.width, columns.start)
        return columns

    def is_on_edges(self, i: int) -> bool:
        """Return whether a value has one row per edge."""
        return self.plan.nodes[i].domain == EDGE


@dataclass(frozen=True, slots=True)
class Terms:
    """Products and operands whose sum is a value."""

    products: tuple[Product, ...] = ()
    operands: tuple[Operand, ...] = ()

    def join(self, other: Terms) -> Terms:
        """Return these terms and those of another value."""
        return Terms((*self.products, *other.products), (*self.operands, *other.operands))


@dataclass(frozen=True, slots=True)
class ProductPart:
    """Product with a parameter."""

    places: Places
    step: MatmulStep

    @property
    def out(self) -> Ref:
        return self.step.out

    @property
    def reads(self) -> tuple[Ref, ...]:
        return (self.step.x,)

    def build_terms(self, into: str, start: int, width: int) -> Terms:
        at, products = 0, []
        weight, leading = locate_weight(self.places, self.step)
        for columns, k in self.places.list_pieces(self.step.x):
            products.append(Product(into, columns, k, weight, leading, at, start))
            at += k
        return Terms(tuple(products))


@dataclass(frozen=True, slots=True)
class EdgeSumPart:
    """Sum over the edges of each vertex."""

    out: Ref
    of: Columns
    type_id: int
    reads: tuple[Ref, ...] = ()

    def build_terms(self, into: str, start: int, width: int) -> Terms:
        row = self.of.row
        assert isinstance(row, Row)
        rows = RowList(EdgeStartOf(self.type_id), row.through)
        return Terms(operands=(Load(replace(self.of.shift(start), row=rows)),))


@dataclass(frozen=True, slots=True)
class PulledPart:
    """Gradient of a state: the contributions of all its readers."""

    out: Ref
    given_back: tuple[Terms, ...]
    reads: tuple[Ref, ...] = ()

    def build_terms(self, into: str, start: int, width: int) -> Terms:
        total = Terms()
        for terms in self.given_back:
            products = tuple(replace(p, into=into, column=p.column + start) for p in terms.products)
            total = total.join(
                Terms(products, tuple(_shift_operand(x, start) for x in terms.operands))
            )
        return total


def _shift_operand(operand: Operand, by: int) -> Operand:
    return Load(operand.columns.shift(by)) if isinstance(operand, Load) else operand


# Each has the columns to which it is added, the values that must be in memory first, and the terms
# of `width` columns from column `start` of these.
SumPart = ProductPart | EdgeSumPart | PulledPart


@dataclass(slots=True, eq=False)
class Sum:
    """Value that is not in memory yet, or only in part.

    Attributes:
        read_at: indices of the steps that compute the sum in registers.
    """

    out: Ref
    parts: list[SumPart]
    start: tuple[Operand, ...] = ()
    start_reads: tuple[Ref, ...] = ()
    added_at: set[int] = field(default_factory=set)
    read_at: set[int] = field(default_factory=set)
    settled: list[Ref] = field(default_factory=list)

    def is_settled(self, ref: Ref) -> bool:
        """Return whether all of these columns are in memory."""
        return any(ref.is_inside(done) for done in self.settled)

    def can_give(self, ref: Ref) -> bool:
        """Return whether a kernel can compute these columns.

        Each part must have all of these columns or none, and none may be in memory yet.
        """
        covered = all(ref.is_inside(p.out) or not ref.has_overlap(p.out) for p in self.parts)
        return covered and not any(ref.has_overlap(done) for done in self.settled)

    def build_terms(self, into: str, ref: Ref) -> Terms:
        """Return the terms of these columns."""
        total = Terms(
            operands=tuple(_shift_operand(x, ref.start - self.out.start) for x in self.start)
        )
        for part in self.parts:
            if ref.has_overlap(part.out):
                total = total.join(part.build_terms(into, ref.start - part.out.start, ref.width))
        return total

    def list_reads(self, ref: Ref) -> tuple[Ref, ...]:
        """Return the values that must be in memory before these columns are computed."""
        of_parts = (r for part in self.parts if ref.has_overlap(part.out) for r in part.reads)
        return (*self.start_reads, *of_parts)

    def list_unsettled(self) -> list[Ref]:
        """Return the columns that are not in memory, split where a part starts or ends."""
        cuts = {self.out.start, self.out.end}
        for ref in (*(part.out for part in self.parts), *self.settled):
            cuts |= {ref.start, ref.end}
        bounds = sorted(cuts)
        refs = (Ref(self.out.buffer, a, b - a) for a, b in pairwise(bounds))
        return [ref for ref in refs if not self.is_settled(ref)]


def find_parameter_shape(places: Places, name: str) -> Sequence[int]:
    """Return the shape of a parameter of a plan."""
    nodes = places.plan.nodes
    return next(node.shape for node in nodes if node.op == "parameter" and node.name == name)


def locate_weight(places: Places, step: MatmulStep) -> tuple[FloatArray, int]:
    """Return the matrix by which a step multiplies from the right, and its number of columns."""
    height, width = find_parameter_shape(places, step.parameter)
    if step.transposed:
        return TransposedOf(step.parameter), height
    return ParameterOf(step.parameter), width
