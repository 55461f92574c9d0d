"""Gradients of states, which those pull that have them: what every reader gives back.

A reader of a state, in the backward half of its function, leaves gradients of its own values; what
they become for the state that it read (a product with a transposed parameter, most often) is
computed where that state's own gradient is used. One phase a level is enough then, and nobody adds
to the memory of another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.engine.backends.cuda.kinds import (
    Base,
    Columns,
    Load,
    Row,
    RowList,
    SumKind,
    Summand,
)
from harness.engine.backends.cuda.places import (
    Piece,
    Places,
    ProductPart,
    Terms,
    inside,
    overlap,
    parameter_shape,
)
from harness.engine.backends.cuda.words import (
    CountOf,
    GradientOf,
    Reader,
    ReaderRowOf,
    ReadersOf,
    ReadersStartOf,
    StateRowOf,
    WordArray,
)
from harness.engine.lowering.plan import MatmulStep, Ref, ScatterAddStep, SinkStep
from harness.errors import UnsupportedTrial


@dataclass(frozen=True, slots=True)
class Pulls:
    """Of all functions together.

    terms: by state. left_out: by function, places of the steps of its backward stage that are left
    to those whose states it read. readers: all that appear in terms.
    """

    terms: Mapping[str, tuple[Terms, ...]]
    left_out: Mapping[int, frozenset[int]]
    readers: frozenset[Reader]


def find_pulls(all_places: Collection[Places], several: Collection[Reader], *, fuse: bool) -> Pulls:
    """Find what all functions give back.

    A reader's row is found by one index where it reads no state twice, which takes fewer
    registers, and through a list of rows where it does.

    Args:
        all_places: of every function.
        several: readers that read some state more than once.
        fuse: whether products may be left to those who pull.
    """
    terms: dict[str, list[Terms]] = {}
    left_out: dict[int, frozenset[int]] = {}
    readers: set[Reader] = set()
    for places in all_places:
        gone: set[int] = set()
        steps = places.plan.steps("backward")
        for place, step in enumerate(steps):
            if not isinstance(step, ScatterAddStep):
                continue
            products = _left_to_children(places, step) if fuse and places.type_id > 0 else None
            if products is not None:
                gone |= {place, *products}
            parts = [ProductPart(places, p) for p in (products or {}).values()]
            given = _given_back(places, step, parts, several, readers)
            terms.setdefault(step.state, []).extend(given)
        left_out[places.type_id] = frozenset(gone)
    return Pulls({s: tuple(t) for s, t in terms.items()}, left_out, frozenset(readers))


def _left_to_children(places: Places, step: ScatterAddStep) -> dict[int, MatmulStep] | None:
    """Products that nobody needs but who pulls these gradients, by place; None: there are others.

    The backward stage of an output function runs over all rows at once, in one large product, which
    is why its products are not left to single levels.
    """
    plan = places.plan
    steps = plan.steps("backward")
    writers = {
        place: one
        for place, one in enumerate(steps)
        if isinstance(one, MatmulStep) and overlap(one.out, step.source)
    }
    others = [r for r in places.readings if any(overlap(r.ref, w.out) for w in writers.values())]
    ours = {
        ("backward", place)
        for place, one in enumerate(steps)
        if place in writers or (isinstance(one, ScatterAddStep) and one == step)
    }
    if any((reading.stage, reading.place) not in ours for reading in others):
        return None
    if not _are_all_of(step, list(writers.values())):
        return None
    for one in writers.values():
        shape = parameter_shape(places, one.parameter)
        if one.bias is not None or one.x.width != (shape[1] if one.transposed else shape[0]):
            return None
        if any(not isinstance(columns.row, Row) for columns, _ in places.pieces(one.x)):
            return None
    return writers


def _are_all_of(step: ScatterAddStep, writers: list[MatmulStep]) -> bool:
    """Whether products alone make what is given back, each of them all columns of a slot or none.

    None of them adds to what another step left.
    """
    source = step.source
    width = source.width // len(step.slots or (0,))
    for start in range(0, source.width, width):
        slot = source.columns(start, width)
        if any(overlap(slot, one.out) and not inside(slot, one.out) for one in writers):
            return False
    begun = [one.out for one in writers if not one.accumulate]
    adding = [one.out for one in writers if one.accumulate]
    n_columns = sum(out.width for out in begun)
    exact = all(inside(out, source) for out in begun) and n_columns == source.width
    return exact and all(any(inside(out, first) for first in begun) for out in adding)


def _given_back(
    places: Places,
    step: ScatterAddStep,
    parts: list[ProductPart],
    several: Collection[Reader],
    readers: set[Reader],
) -> Iterator[Terms]:
    """Yield what one step gives back, slot by slot; add its readers to `readers`."""
    slots = None if step.slots is None else places.plan.slots[step.state]
    read: tuple[int | None, ...] = (None,) if step.slots is None else step.slots
    width = step.source.width // len(read)
    for k, slot in enumerate(read):
        at = 0 if slots is None or slot is None else slots.index(slot)
        source = step.source.columns(k * width, width)

        def pulled(columns: Columns, at: int = at) -> Columns:
            reading = _reading(places, step.state, slots, at, columns)
            readers.add(reading)
            return replace(columns, row=_row_of_reader(reading, several))

        yield _terms(places, source, parts, pulled)


def _terms(
    places: Places,
    source: Ref,
    parts: list[ProductPart],
    pulled: Callable[[Columns], Columns],
) -> Terms:
    total = Terms()
    if parts:
        for part in parts:
            if not overlap(source, part.out):
                continue
            if not inside(source, part.out):
                raise UnsupportedTrial("a product is a part of a child's gradient")
            found = part.terms("", source.start - part.out.start, source.width)
            products = tuple(replace(p, x=pulled(p.x)) for p in found.products)
            total = total.joined(Terms(products))
        return total
    columns = places.piece(source)
    if columns is None:
        raise UnsupportedTrial("a child's gradient lies in several places")
    return Terms(operands=(Load(pulled(columns)),))


def _reading(
    places: Places, state: str, slots: tuple[int, ...] | None, at: int, columns: Columns
) -> Reader:
    """Through which rows a reader's own columns are found."""
    row = columns.row
    assert isinstance(row, Row)
    found_by: WordArray | None = row.through
    if row.base is Base.STATES:
        found_by = StateRowOf(places.type_id)
    return Reader(state, places.type_id, slots, at, found_by, row.stride, row.at)


def _row_of_reader(reading: Reader, several: Collection[Reader]) -> Row | RowList:
    if reading in several:
        return RowList(ReadersStartOf(reading), ReadersOf(reading), Base.STATES)
    return Row(Base.STATES, ReaderRowOf(reading), optional=True)


@dataclass(frozen=True, slots=True)
class Block:
    """Elements (row, column) on of a gradient, height (0: of a vector) x width.

    leading: elements between rows of the gradient.
    """

    name: str
    leading: int
    row: int
    column: int
    height: int
    width: int

    def meets(self, other: Block) -> bool:
        """Whether they have elements in common."""
        rows = _meet(self.row, max(1, self.height), other.row, max(1, other.height))
        return self.name == other.name and rows and _meet(
            self.column, self.width, other.column, other.width
        )  # fmt: skip


def _meet(start: int, size: int, other_start: int, other_size: int) -> bool:
    return start < other_start + other_size and other_start < start + size


def sums_of_step(places: Places, step: SinkStep, *, whole: bool) -> list[SumKind]:
    """Kinds of one sink, which add to its gradient.

    whole: over all rows of the function, not those of an instruction.
    """
    return [_kind(block, [one], adds=True) for block, one in _summands(places, step, whole)]


def sums_of_all(all_places: Iterable[Places]) -> tuple[list[SumKind], frozenset[str]]:
    """Kinds of all sinks behind the batches, and the parameters whose gradients they add to.

    Other gradients they write: one kind for every block, whichever functions add to it.
    """
    found: dict[Block, list[Summand]] = {}
    shapes: dict[str, Sequence[int]] = {}
    for places in all_places:
        for step in places.plan.steps("backward_lazy"):
            if isinstance(step, SinkStep) and places.plan.nodes[step.node].op != "row_sum":
                node = places.plan.nodes[step.node]
                shapes[node.name] = node.shape
                for block, summand in _summands(places, step, whole=True):
                    found.setdefault(block, []).append(summand)
    added_to = frozenset(
        name
        for name, shape in shapes.items()
        if not _covers([block for block in found if block.name == name], shape)
    )
    kinds = [
        _kind(block, summands, adds=block.name in added_to) for block, summands in found.items()
    ]
    return kinds, added_to


def _covers(blocks: Sequence[Block], shape: Sequence[int]) -> bool:
    """Whether blocks fill a gradient, no two of them the same element."""
    apart = not any(a.meets(b) for k, a in enumerate(blocks) for b in blocks[:k])
    n_elements = sum(max(1, block.height) * block.width for block in blocks)
    size = 1
    for length in shape:
        size *= length
    return apart and n_elements == size


def _kind(block: Block, summands: Sequence[Summand], *, adds: bool) -> SumKind:
    return SumKind(
        GradientOf(block.name), block.leading, block.row, block.column, block.height, block.width,
        tuple(summands), adds,
    )  # fmt: skip


def _summands(places: Places, step: SinkStep, whole: bool) -> list[tuple[Block, Summand]]:
    """Of one sink: a block for every pair of places that its operands lie in."""
    plan = places.plan
    node = plan.nodes[step.node]
    *inputs, dy = (plan.refs[k] for k in node.inputs)
    on_edges = places.on_edges(node.inputs[-1])
    count = CountOf(places.type_id, on_edges) if whole else None
    leading = node.shape[-1]
    per_row = dy.width // leading

    def of_rows(columns: Columns) -> Columns:
        return places.whole(columns) if whole else columns

    found = []
    for dy_columns, width, column in _with_starts(places, dy, per_row, leading):
        if node.op == "vertex_sum":
            block = Block(node.name, leading, 0, column, 0, width)
            found.append((block, Summand(of_rows(dy_columns), None, count, per_row)))
            continue
        for x_columns, height, row in _with_starts(places, inputs[0], per_row, node.shape[0]):
            block = Block(node.name, leading, row, column, height, width)
            summand = Summand(of_rows(dy_columns), of_rows(x_columns), count, per_row)
            found.append((block, summand))
    return found


def _with_starts(
    places: Places, ref: Ref, per_row: int, width: int
) -> Iterable[tuple[Columns, int, int]]:
    """Where an operand lies: columns, how many, and the first of them in the operand."""
    pieces: list[Piece] = places.pieces(ref)
    if per_row > 1:
        if len(pieces) > 1:
            raise UnsupportedTrial("a matrix that lies in several places is summed up")
        return [(pieces[0][0], width, 0)]
    found, at = [], 0
    for columns, n in pieces:
        found.append((columns, n, at))
        at += n
    return found
