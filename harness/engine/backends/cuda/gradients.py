"""Pulled gradients of states: each function sums the contributions of all readers of its states.

In its backward stage, a reader of a state computes only gradients of its own values. Its
contribution to the gradient of the state (usually a product with a transposed parameter) is
computed where that gradient is used. So one phase per level is enough, and no function adds to the
memory of another.

Gradients of parameters are sums over rows, of a batch or of a whole function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dynbatch.harness.engine.backends.cuda.kinds import (
    Base,
    Columns,
    Load,
    Row,
    RowList,
    Store,
    SumKind,
    Summand,
    TileKind,
    Tiling,
    UnbatchedKind,
    cut,
)
from dynbatch.harness.engine.backends.cuda.places import (
    Piece,
    Places,
    ProductPart,
    Terms,
    find_parameter_shape,
)
from dynbatch.harness.engine.backends.cuda.words import (
    CountOf,
    GradientOf,
    PartialOf,
    Reader,
    ReaderRowOf,
    ReadersOf,
    ReadersStartOf,
    StateRowOf,
    WordArray,
)
from dynbatch.harness.engine.lowering.plan import (
    MatmulStep,
    Operation,
    Ref,
    ScatterAddStep,
    SinkStep,
)
from dynbatch.harness.errors import UnsupportedTrial


@dataclass(frozen=True, slots=True)
class Pulls:
    """Contributions of all functions.

    Attributes:
        left_out: indices of the backward steps that pulling functions compute instead, by type id.
    """

    terms: Mapping[str, tuple[Terms, ...]]
    left_out: Mapping[int, frozenset[int]]
    readers: frozenset[Reader]


def find_pulls(all_places: Collection[Places], several: Collection[Reader], *, fuse: bool) -> Pulls:
    """Find the contributions of all functions.

    If a reader reads no state row twice, one index finds its row, which takes fewer registers;
    otherwise a list of rows does.

    Args:
        several: readers that read some state row more than once.

    Raises:
        UnsupportedTrial: a contribution has several locations or is part of a product.
    """
    terms: dict[str, list[Terms]] = {}
    left_out: dict[int, frozenset[int]] = {}
    readers: set[Reader] = set()
    for places in all_places:
        gone: set[int] = set()
        steps = places.plan.steps["backward"]
        for index, step in enumerate(steps):
            if not isinstance(step, ScatterAddStep):
                continue
            products = (
                _find_deferred_products(places, step) if fuse and places.type_id > 0 else None
            )
            if products is not None:
                gone |= {index, *products}
            parts = [ProductPart(places, p) for p in (products or {}).values()]
            given = _yield_terms(places, step, parts, several, readers)
            terms.setdefault(step.state, []).extend(given)
        left_out[places.type_id] = frozenset(gone)
    return Pulls({s: tuple(t) for s, t in terms.items()}, left_out, frozenset(readers))


def _find_deferred_products(places: Places, step: ScatterAddStep) -> dict[int, MatmulStep] | None:
    """Return the products that only a scatter-add reads, by index of their step.

    The backward stage of an output function runs over all rows at once, as one large product, so
    its products are not moved to single levels.

    Returns:
        The products; None if another step reads them, or if they are not the whole contribution in
            a form that pulling functions can compute.
    """
    plan = places.plan
    steps = plan.steps["backward"]
    writers = {
        index: candidate
        for index, candidate in enumerate(steps)
        if isinstance(candidate, MatmulStep) and candidate.out.has_overlap(step.source)
    }
    outs = [writer.out for writer in writers.values()]
    others = [r for r in places.readings if any(r.ref.has_overlap(out) for out in outs)]
    ours = {
        ("backward", index)
        for index, candidate in enumerate(steps)
        if index in writers or (isinstance(candidate, ScatterAddStep) and candidate == step)
    }
    if any((reading.stage, reading.step_index) not in ours for reading in others):
        return None
    if not _are_all_of(step, list(writers.values())):
        return None
    for candidate in writers.values():
        shape = find_parameter_shape(places, candidate.parameter)
        if candidate.bias is not None or candidate.x.width != (
            shape[1] if candidate.transposed else shape[0]
        ):
            return None
        if any(not isinstance(columns.row, Row) for columns, _ in places.list_pieces(candidate.x)):
            return None
    return writers


def _are_all_of(step: ScatterAddStep, writers: list[MatmulStep]) -> bool:
    """Return whether only products compute a contribution, each of them whole slots.

    Products that accumulate may add only to columns that another of these products starts.
    """
    source = step.source
    width = source.width // len(step.slots or (0,))
    for start in range(0, source.width, width):
        slot = source.slice_columns(start, width)
        if any(slot.has_overlap(w.out) and not slot.is_inside(w.out) for w in writers):
            return False
    begun = [writer.out for writer in writers if not writer.accumulate]
    adding = [writer.out for writer in writers if writer.accumulate]
    n_columns = sum(out.width for out in begun)
    exact = all(out.is_inside(source) for out in begun) and n_columns == source.width
    return exact and all(any(out.is_inside(first) for first in begun) for out in adding)


def _yield_terms(
    places: Places,
    step: ScatterAddStep,
    parts: list[ProductPart],
    several: Collection[Reader],
    readers: set[Reader],
) -> Iterator[Terms]:
    """Yield the terms of one step, slot by slot; add its readers to `readers`."""
    slots = None if step.slots is None else places.plan.slots[step.state]
    read: tuple[int | None, ...] = (None,) if step.slots is None else step.slots
    width = step.source.width // len(read)
    for k, slot in enumerate(read):
        at = 0 if slots is None or slot is None else slots.index(slot)
        source = step.source.slice_columns(k * width, width)

        def pull_columns(columns: Columns, at: int = at) -> Columns:
            reading = _make_reader(places, step.state, slots, at, columns)
            readers.add(reading)
            return replace(columns, row=_make_reader_row(reading, several))

        yield _build_terms(places, source, parts, pull_columns)


def _build_terms(
    places: Places,
    source: Ref,
    parts: list[ProductPart],
    pulled: Callable[[Columns], Columns],
) -> Terms:
    total = Terms()
    if parts:
        for part in parts:
            if not source.has_overlap(part.out):
                continue
            if not source.is_inside(part.out):
                raise UnsupportedTrial(
                    "a child's gradient contains part of a matmul; use backend=stepwise"
                )
            terms = part.build_terms("", source.start - part.out.start, source.width)
            products = tuple(replace(p, x=pulled(p.x)) for p in terms.products)
            total = total.join(Terms(products))
        return total
    columns = places.find_piece(source)
    if columns is None:
        raise UnsupportedTrial("a child's gradient is not contiguous; use backend=stepwise")
    return Terms(operands=(Load(pulled(columns)),))


def _make_reader(
    places: Places, state: str, slots: tuple[int, ...] | None, at: int, columns: Columns
) -> Reader:
    """Return the reader of a state, given the columns that hold the reader's gradient."""
    row = columns.row
    assert isinstance(row, Row)
    found_by: WordArray | None = row.through
    if row.base is Base.STATES:
        found_by = StateRowOf(places.type_id)
    return Reader(state, places.type_id, slots, at, found_by, row.stride, row.at)


def _make_reader_row(reading: Reader, several: Collection[Reader]) -> Row | RowList:
    if reading in several:
        return RowList(ReadersStartOf(reading), ReadersOf(reading), Base.STATES)
    return Row(Base.STATES, ReaderRowOf(reading), optional=True)


@dataclass(frozen=True, slots=True)
class GradientBlock:
    """Block of a parameter's gradient.

    Attributes:
        leading: elements between rows of the gradient.
        height: number of rows; 0 for a vector.
    """

    name: str
    leading: int
    row: int
    column: int
    height: int
    width: int

    def has_overlap(self, other: GradientBlock) -> bool:
        """Return whether two blocks have elements in common."""
        rows = _meet(self.row, max(1, self.height), other.row, max(1, other.height))
        return self.name == other.name and rows and _meet(
            self.column, self.width, other.column, other.width
        )  # fmt: skip


def _meet(start: int, size: int, other_start: int, other_size: int) -> bool:
    return start < other_start + other_size and other_start < start + size


def build_step_sums(places: Places, step: SinkStep) -> list[SumKind]:
    """Return the kinds that add one sink to its gradient, over the rows of an instruction."""
    return [
        _make_kind(block, [summand], adds=True)
        for block, summand in _list_summands(places, step, whole=False)
    ]


def build_lazy_sums(all_places: Iterable[Places]) -> tuple[list[SumKind], frozenset[str]]:
    """Return the kinds of all lazy sinks, and the parameters whose gradients they add to.

    Other gradients are overwritten, by one kind per block for all functions that contribute.
    """
    by_block: dict[GradientBlock, list[Summand]] = {}
    shapes: dict[str, Sequence[int]] = {}
    for places in all_places:
        for step in places.plan.steps["backward_lazy"]:
            if isinstance(step, SinkStep) and places.plan.nodes[step.node].op != "row_sum":
                node = places.plan.nodes[step.node]
                shapes[node.name] = node.shape
                for block, summand in _list_summands(places, step, whole=True):
                    by_block.setdefault(block, []).append(summand)
    added_to = frozenset(
        name
        for name, shape in shapes.items()
        if not _is_covered([block for block in by_block if block.name == name], shape)
    )
    kinds = [
        _make_kind(block, summands, adds=block.name in added_to)
        for block, summands in by_block.items()
    ]
    return kinds, added_to


def _is_covered(blocks: Sequence[GradientBlock], shape: Sequence[int]) -> bool:
    """Return whether blocks fill a gradient without overlaps."""
    apart = not any(a.has_overlap(b) for k, a in enumerate(blocks) for b in blocks[:k])
    n_elements = sum(max(1, block.height) * block.width for block in blocks)
    return apart and n_elements == math.prod(shape)


def _make_kind(block: GradientBlock, summands: Sequence[Summand], *, adds: bool) -> SumKind:
    return SumKind(
        GradientOf(block.name), block.leading, block.row, block.column, block.height, block.width,
        tuple(summands), adds,
    )  # fmt: skip


def _list_summands(
    places: Places, step: SinkStep, whole: bool
) -> list[tuple[GradientBlock, Summand]]:
    """Return the summands of one sink, with a block for each pair of locations of its operands."""
    plan = places.plan
    node = plan.nodes[step.node]
    *inputs, dy = (plan.refs[k] for k in node.inputs)
    on_edges = places.is_on_edges(node.inputs[-1])
    count = CountOf(places.type_id, on_edges) if whole else None
    leading = node.shape[-1]
    per_row = dy.width // leading

    def select_rows(columns: Columns) -> Columns:
        return places.select_all_rows(columns) if whole else columns

    summands = []
    for dy_columns, width, column in _list_locations(places, dy, per_row, leading):
        if node.op == "vertex_sum":
            block = GradientBlock(node.name, leading, 0, column, 0, width)
            summands.append((block, Summand(select_rows(dy_columns), None, count, per_row)))
            continue
        for x_columns, height, row in _list_locations(places, inputs[0], per_row, node.shape[0]):
            block = GradientBlock(node.name, leading, row, column, height, width)
            summand = Summand(select_rows(dy_columns), select_rows(x_columns), count, per_row)
            summands.append((block, summand))
    return summands


def _list_locations(
    places: Places, ref: Ref, per_row: int, width: int
) -> Iterable[tuple[Columns, int, int]]:
    """Return the locations of an operand, each with its width and its offset in the operand.

    Raises:
        UnsupportedTrial: the operand has a matrix per vertex and several locations.
    """
    pieces: list[Piece] = places.list_pieces(ref)
    if per_row > 1:
        if len(pieces) > 1:
            raise UnsupportedTrial(
                "cannot sum a matrix that is not contiguous; use backend=stepwise"
            )
        return [(pieces[0][0], width, 0)]
    locations, at = [], 0
    for columns, n in pieces:
        locations.append((columns, n, at))
        at += n
    return locations


# --- sums in parts, which keep all processors busy if a model is small ---

# A sum loops over all rows of a mini-batch, 2,200 in 64 trees: on an H200, a block of 64 x 64 took
# 40 us, and at hidden 64 there are 19 of them for 132 processors.
WANTED_TILES = 1024
MAX_PARTS = 16


def place_sums(sums: Sequence[SumKind], first_phase: int, tiling: Tiling) -> list[UnbatchedKind]:
    """Return sums with their phases; those that replace the present value are split into parts.

    The others run one after another.
    """
    replacing = [kind for kind in sums if not kind.adds]
    n_tiles = sum(cut(kind, tiling.sums)[1] for kind in replacing)
    parts = min(MAX_PARTS, WANTED_TILES // max(1, n_tiles))
    if parts > 1:
        placed = [UnbatchedKind(_make_partial(kind, parts), first_phase) for kind in replacing]
        placed += [_add_up(kind, parts, first_phase + 1) for kind in replacing]
    else:
        placed = [UnbatchedKind(kind, first_phase) for kind in replacing]
    adding = [kind for kind in sums if kind.adds]
    return placed + [UnbatchedKind(kind, first_phase + k) for k, kind in enumerate(adding)]


def _make_partial(kind: SumKind, parts: int) -> SumKind:
    array, leading = _name_partial(kind, parts), parts * kind.width
    return replace(kind, gradient=array, leading=leading, row=0, column=0, parts=parts)


def _name_partial(kind: SumKind, parts: int) -> PartialOf:
    assert isinstance(kind.gradient, GradientOf)
    height = max(1, kind.height)
    return PartialOf(kind.gradient.name, kind.row, kind.column, height, kind.width, parts)


def _add_up(kind: SumKind, parts: int, phase: int) -> UnbatchedKind:
    """Return the kind that adds up partial sums, row by row of the block."""
    array = _name_partial(kind, parts)
    names = tuple(f"x{k}" for k in range(parts))
    loads = tuple(
        (name, Load(Columns(array, Row(), parts * kind.width, k * kind.width)))
        for k, name in enumerate(names)
    )
    out = Columns(kind.gradient, Row(), kind.leading, kind.row * kind.leading + kind.column)
    total, store = Operation("total", "sum", names), Store(out, "total")
    adding = TileKind(kind.width, loads=loads, operations=(total,), stores=(store,))
    return UnbatchedKind(adding, phase, array.height)
