"""How much of a kind one program computes at a time, and how many tiles a range of rows has."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.engine.backends.cuda.kinds import (
    CopyKind,
    Kind,
    MatrixKind,
    RowSumKind,
    SoftmaxKind,
    StepKind,
    SumKind,
    TableStepKind,
    TileKind,
    TotalKind,
)

MANY = 2**31 - 1  # rows
FLAT = 1024  # elements of a tile that is not cut into rows and columns


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows, columns, and how much of the inner dimension at a time; all powers of two.

    spread: the inner dimension is cut over the threads of a program and summed at the end, which
    keeps them busy where rows are few.
    """

    rows: int
    columns: int
    inner: int
    spread: bool = False

    def __post_init__(self) -> None:
        for size in (self.rows, self.columns, self.inner):
            if size < 1 or size & (size - 1):
                raise ValueError(f"a tile of {self}: sizes are powers of two")


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tiles of every form of kind.

    products: of kinds with products, each for up to so many rows, the last for any number: a level
    of few rows has too few large tiles to keep all processors busy. With 32 of the inner dimension
    at a time the largest would spill up to 48 bytes a thread, with as many instructions a product.
    """

    products: tuple[tuple[int, Tile], ...] = (
        (16, Tile(4, 8, 64, spread=True)),
        (256, Tile(16, 32, 32)),
        (MANY, Tile(64, 32, 16)),
    )
    plain: Tile = Tile(16, 64, 1)
    sums: Tile = Tile(64, 64, 32)
    wide_rows: Tile = Tile(4, 256, 1)

    def __post_init__(self) -> None:
        limits = [limit for limit, _ in self.products]
        if limits != sorted(set(limits)) or limits[-1:] != [MANY]:
            raise ValueError(f"tiles for up to {limits} rows; give them in order, {MANY} last")

    def of(self, kind: Kind) -> tuple[Tile, ...]:
        """The tiles of a kind, those for few rows first."""
        if isinstance(kind, TileKind):
            return tuple(t for _, t in self.products) if kind.products else (self.plain,)
        if isinstance(kind, SumKind):
            return (self.sums,)
        if isinstance(kind, SoftmaxKind | RowSumKind):
            return (self.wide_rows,)
        return (self.plain,)

    def variant(self, n_rows: int) -> int:
        """Which of several tiles is for so many rows."""
        return next(k for k, (limit, _) in enumerate(self.products) if n_rows <= limit)


@dataclass(frozen=True, slots=True)
class Cut:
    """How a kind's rows become tiles: so many rows each, and `across` of them side by side.

    rows: 0 where the number of tiles is the same (across) for any rows.
    """

    rows: int
    across: int

    def n_tiles(self, n_rows: int) -> int:
        """How many tiles so many rows have, those of matrices counted one by one."""
        return self.across * (math.ceil(n_rows / self.rows) if self.rows else 1)


def cut_of(kind: Kind, tile: Tile) -> Cut:
    """How a kind is cut."""
    if isinstance(kind, TileKind | TableStepKind):
        return Cut(tile.rows, math.ceil(kind.width / tile.columns))
    if isinstance(kind, MatrixKind):
        return Cut(tile.rows, math.ceil(matrix_width(kind) / tile.columns))
    if isinstance(kind, SoftmaxKind | RowSumKind):
        return Cut(tile.rows, 1)
    if isinstance(kind, SumKind):
        down = math.ceil(kind.height / tile.rows) if kind.height else 1
        return Cut(0, down * math.ceil(kind.width / tile.columns))
    if isinstance(kind, TotalKind):
        return Cut(0, 1)  # so that the order of additions is always the same
    if isinstance(kind, CopyKind | StepKind):
        return Cut(0, math.ceil(kind.n_rows * kind.width / FLAT))
    raise TypeError(f"{type(kind).__name__} is no kind")


def rows_per_vertex(kind: Kind) -> int:
    """Rows of tiles that a row of a function has: those of its matrix."""
    return kind.per_row if isinstance(kind, TileKind) else 1


def matrix_width(kind: MatrixKind) -> int:
    """Columns of what a kind with a matrix a vertex computes."""
    return kind.k * kind.n_columns if kind.form == "outer" else kind.n_columns
