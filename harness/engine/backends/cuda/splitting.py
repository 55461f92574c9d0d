"""Sums of parameter gradients in parts, which keep all processors busy if a model is small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynbatch.harness.engine.backends.cuda.kinds import (
    Columns,
    Load,
    Row,
    Store,
    SumKind,
    TileKind,
    Tiling,
    UnbatchedKind,
    make_cut,
)
from dynbatch.harness.engine.backends.cuda.words import GradientOf, PartialOf
from dynbatch.harness.engine.lowering.plan import Operation

# A sum loops over all rows of a mini-batch, 2,200 in 64 trees: on an H200, a block of 64 x 64 took
# 40 us, and at hidden 64 there are 19 of them for 132 processors.
WANTED_TILES = 1024
MAX_PARTS = 16


def place_sums(sums: Sequence[SumKind], first_phase: int, tiling: Tiling) -> list[UnbatchedKind]:
    """Return sums with their phases; those that replace the present value are split into parts.

    The others run one after another.
    """
    replacing = [kind for kind in sums if not kind.adds]
    n_tiles = sum(make_cut(kind, tiling.sums).across for kind in replacing)
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
