"""Gradients of states, which those pull that have them: what every reader gives back.

A reader of a state, in the backward half of its function, leaves gradients of its own values; what
they become for the state that it read (a product with a transposed parameter, most often) is
computed where that state's own gradient is used. One phase a level is enough then, and nobody adds
to the memory of another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from harness.engine.backends.cuda.arrays import StateRowOf, WordArray
from harness.engine.backends.cuda.kinds import Base, Columns, Load, Row, RowList
from harness.engine.backends.cuda.parts import ProductPart, Terms, parameter_shape
from harness.engine.backends.cuda.places import Places, inside, overlap
from harness.engine.backends.cuda.readers import Reader, ReaderRowOf, ReadersOf, ReadersStartOf
from harness.engine.lowering.plan import MatmulStep, Ref, ScatterAddStep
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
    """What all functions give back.

    several: readers that read some state more than once. fuse: whether products may be left to
    those who pull.
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
            for one, found in _given_back(places, step, parts, several):
                terms.setdefault(step.state, []).append(one)
                readers |= found
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
) -> Iterator[tuple[Terms, set[Reader]]]:
    """What one step gives back, slot by slot."""
    slots = None if step.slots is None else places.plan.slots[step.state]
    read: tuple[int | None, ...] = (None,) if step.slots is None else step.slots
    width = step.source.width // len(read)
    for k, slot in enumerate(read):
        at = 0 if slots is None or slot is None else slots.index(slot)
        source = step.source.columns(k * width, width)
        used: set[Reader] = set()

        def pulled(columns: Columns, at: int = at, used: set[Reader] = used) -> Columns:
            reading = _reading(places, step.state, slots, at, columns)
            used.add(reading)
            return replace(columns, row=_row_of_reader(reading, several))

        yield _terms(places, source, parts, pulled), used


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
