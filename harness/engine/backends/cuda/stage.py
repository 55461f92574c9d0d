"""A stage of one vertex function in the making: kinds, their phases, and what is still a sum.

Kinds of one phase do not read what another of them writes. A product, a sum over edges and a pulled
gradient stay sums of their parts until somebody reads them: position by position, they are added up
in the reader's registers; else they become a kind of their own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from harness.engine.backends.cuda.kinds import (
    Columns,
    Kind,
    Operand,
    Store,
    TileKind,
    parameters_of,
)
from harness.engine.backends.cuda.parts import Sum
from harness.engine.backends.cuda.places import Places, inside, overlap
from harness.engine.lowering.plan import Ref, Role
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
        shown = [*plan.pushes, *(() if plan.loss is None else (plan.loss,))]
        if any(k in plan.refs and overlap(plan.refs[k], ref) for k in shown):
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
