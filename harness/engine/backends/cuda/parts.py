"""What a value is the sum of before any kernel has computed it: products, children, readers.

Such a value needs no memory of its own where the kernel that reads it position by position adds it
up in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

from harness.engine.backends.cuda.arrays import EdgeStartOf, ParameterOf
from harness.engine.backends.cuda.kinds import Columns, Load, Operand, Product, Row, RowList
from harness.engine.backends.cuda.places import Places, inside, overlap
from harness.engine.lowering.plan import MatmulStep, Ref


@dataclass(frozen=True, slots=True)
class Terms:
    """Products and operands that are added to one value."""

    products: tuple[Product, ...] = ()
    operands: tuple[Operand, ...] = ()

    def joined(self, other: Terms) -> Terms:
        """With those of another."""
        return Terms((*self.products, *other.products), (*self.operands, *other.operands))


class Part(Protocol):
    """Something that is added to columns `out` of a value."""

    @property
    def out(self) -> Ref:
        """Which columns."""

    @property
    def reads(self) -> tuple[Ref, ...]:
        """What has to be in memory first."""

    def terms(self, into: str, start: int, width: int) -> Terms:
        """Of the columns of `out` from `start` on."""


@dataclass(frozen=True, slots=True)
class ProductPart:
    """A product with a parameter."""

    places: Places
    step: MatmulStep

    @property
    def out(self) -> Ref:
        return self.step.out

    @property
    def reads(self) -> tuple[Ref, ...]:
        return (self.step.x,)

    def terms(self, into: str, start: int, width: int) -> Terms:
        step, at, products = self.step, 0, []
        leading = parameter_shape(self.places, step.parameter)[1]
        for columns, k in self.places.pieces(step.x):
            row, column = (start, at) if step.transposed else (at, start)
            weight = ParameterOf(step.parameter)
            products.append(
                Product(into, columns, k, weight, leading, row, column, step.transposed)
            )
            at += k
        return Terms(tuple(products))


@dataclass(frozen=True, slots=True)
class EdgeSumPart:
    """The sum over a vertex's edges."""

    out: Ref
    of: Columns
    type_id: int
    reads: tuple[Ref, ...] = ()

    def terms(self, into: str, start: int, width: int) -> Terms:
        row = self.of.row
        assert isinstance(row, Row)
        rows = RowList(EdgeStartOf(self.type_id), row.through)
        return Terms(operands=(Load(replace(self.of.moved(start), row=rows)),))


@dataclass(frozen=True, slots=True)
class PulledPart:
    """The gradient of a state: what all that read the state give back."""

    out: Ref
    given_back: tuple[Terms, ...]
    reads: tuple[Ref, ...] = ()

    def terms(self, into: str, start: int, width: int) -> Terms:
        total = Terms()
        for one in self.given_back:
            products = tuple(replace(p, into=into, row=p.row + start) for p in one.products)
            total = total.joined(Terms(products, tuple(_moved(x, start) for x in one.operands)))
        return total


def _moved(operand: Operand, by: int) -> Operand:
    return Load(operand.columns.moved(by)) if isinstance(operand, Load) else operand


@dataclass(slots=True, eq=False)
class Sum:
    """A value in the making.

    start: what it begins with, besides its parts. added_at: places of the steps that add to it;
    read_at: of those that add it up. settled: columns that are in memory by now.
    """

    out: Ref
    parts: list[Part]
    start: tuple[Operand, ...] = ()
    start_reads: tuple[Ref, ...] = ()
    added_at: set[int] = field(default_factory=set)
    read_at: set[int] = field(default_factory=set)
    settled: list[Ref] = field(default_factory=list)

    def is_settled(self, ref: Ref) -> bool:
        """Whether all of these columns are in memory."""
        return any(inside(ref, done) for done in self.settled)

    def can_give(self, ref: Ref) -> bool:
        """Whether a kernel can add these columns up: none of its parts is only in some of them."""
        covered = all(inside(ref, p.out) or not overlap(ref, p.out) for p in self.parts)
        return covered and not any(overlap(ref, done) for done in self.settled)

    def terms(self, into: str, ref: Ref) -> Terms:
        """What columns of it are the sum of."""
        total = Terms(operands=tuple(_moved(x, ref.start - self.out.start) for x in self.start))
        for part in self.parts:
            if overlap(ref, part.out):
                total = total.joined(part.terms(into, ref.start - part.out.start, ref.width))
        return total

    def reads(self, ref: Ref) -> tuple[Ref, ...]:
        """What must be in memory before these columns are added up."""
        of_parts = (r for part in self.parts if overlap(ref, part.out) for r in part.reads)
        return (*self.start_reads, *of_parts)

    def unsettled(self) -> list[Ref]:
        """The columns that are not in memory, cut where a part begins or ends."""
        cuts = {self.out.start, self.out.start + self.out.width}
        for ref in (*(part.out for part in self.parts), *self.settled):
            cuts |= {ref.start, ref.start + ref.width}
        bounds = sorted(cuts)
        refs = (Ref(self.out.buffer, a, b - a) for a, b in pairwise(bounds))
        return [ref for ref in refs if not self.is_settled(ref)]


def parameter_shape(places: Places, name: str) -> Sequence[int]:
    """Shape of a parameter of a plan."""
    nodes = places.plan.nodes
    return next(node.shape for node in nodes if node.op == "parameter" and node.name == name)
