"""What fused kernels do, as data: rows, columns, products, and the kinds that are made of them.

A kind is one tile function of the generated module; an instruction of the device program runs it
over a range of rows. Nothing here knows Triton.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from harness.engine.backends.cuda.words import FloatArray, ParameterOf, WordArray
from harness.engine.lowering.plan import Operation


class Base(StrEnum):
    """What a row of a kind counts: rows of its function (or edges), or rows of the states."""

    ROWS = "rows"
    STATES = "states"


@dataclass(frozen=True, slots=True)
class Row:
    """Where a row of a kind finds its row of an array: itself, or through an index.

    The index is read at base * stride + at. optional: it holds -1 where there is no row, which
    then counts as zeros.
    """

    base: Base = Base.ROWS
    through: WordArray | None = None
    stride: int = 1
    at: int = 0
    optional: bool = False


@dataclass(frozen=True, slots=True)
class RowList:
    """Any number of rows, summed: items starts[base] to starts[base + 1]; None: these numbers."""

    starts: WordArray
    items: WordArray | None
    base: Base = Base.ROWS


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of an array's rows, from `start` on; width: elements between rows."""

    array: FloatArray
    row: Row | RowList
    width: int
    start: int

    def moved(self, by: int) -> Columns:
        """The columns that begin so much later."""
        return Columns(self.array, self.row, self.width, self.start + by)


@dataclass(frozen=True, slots=True)
class Load:
    """Columns position by position; same: the first of them for all positions."""

    columns: Columns
    same: bool = False


@dataclass(frozen=True, slots=True)
class LoadParameter:
    """Elements of a vector, the same in all rows; period: after so many it begins anew, or 0."""

    array: FloatArray
    start: int
    period: int = 0


@dataclass(frozen=True, slots=True)
class Constant:
    """One value everywhere."""

    value: float


Operand = Load | LoadParameter | Constant


@dataclass(frozen=True, slots=True)
class Product:
    """Adds x times a block of a matrix, whose rows hold `leading` elements, to a value.

    k: columns of x. The block begins at (row, column); transposed: its rows are the value's
    columns.
    """

    into: str
    x: Columns
    k: int
    weight: FloatArray
    leading: int
    row: int
    column: int
    transposed: bool


@dataclass(frozen=True, slots=True)
class Store:
    """A value written to columns."""

    columns: Columns
    name: str


@dataclass(frozen=True, slots=True)
class TileKind:
    """Products into registers, then operators on them and over loads, then stores.

    width: columns of all of its values. sums: values that begin with these operands, and to which
    products add. per_row: rows of a matrix a vertex, of which each is a row of the tiles.
    """

    width: int
    sums: tuple[tuple[str, tuple[Operand, ...]], ...] = ()
    products: tuple[Product, ...] = ()
    loads: tuple[tuple[str, Operand], ...] = ()
    operations: tuple[Operation, ...] = ()
    stores: tuple[Store, ...] = ()
    per_row: int = 1


@dataclass(frozen=True, slots=True)
class SoftmaxKind:
    """Loss log(sum exp x) - x[label] of rows x = logits + bias, and what it leaves behind.

    gradient: where (softmax - one-hot) times dy is written; biased: where x itself is.
    """

    logits: Columns
    n_classes: int
    label: WordArray
    bias: FloatArray | None = None
    loss: Columns | None = None
    log_sum: Columns | None = None
    gradient: Columns | None = None
    dy: Columns | None = None
    biased: Columns | None = None


@dataclass(frozen=True, slots=True)
class RowSumKind:
    """The sum over the columns of every row."""

    x: Columns
    n_columns: int
    out: Columns


class MatrixForm(StrEnum):
    """How a vertex's own matrix A is multiplied: x A, x A^T, or made, as x^T y."""

    APPLY = "apply"
    APPLY_TRANSPOSED = "apply_transposed"
    OUTER = "outer"


@dataclass(frozen=True, slots=True)
class MatrixKind:
    """x of width k with a matrix of the vertex (or with y, of which it makes one), to n columns."""

    form: MatrixForm
    x: Columns
    y: Columns
    out: Columns
    k: int
    n_columns: int


@dataclass(frozen=True, slots=True)
class Summand:
    """x^T dy of one function's rows; x None: dy summed over the rows.

    count: how many rows the function has in the mini-batch (None: those of the instruction).
    per_row: rows of a matrix a vertex.
    """

    dy: Columns
    x: Columns | None = None
    count: WordArray | None = None
    per_row: int = 1


@dataclass(frozen=True, slots=True)
class SumKind:
    """A block of a parameter's gradient: height x width elements from (row, column) on.

    height: 0 for a vector. adds: to what is there.
    """

    gradient: FloatArray
    leading: int
    row: int
    column: int
    height: int
    width: int
    summands: tuple[Summand, ...]
    adds: bool


@dataclass(frozen=True, slots=True)
class CopyKind:
    """Columns of one matrix into columns of another, all of its n_rows."""

    source: FloatArray
    source_leading: int
    source_column: int
    out: FloatArray
    out_leading: int
    out_column: int
    n_rows: int
    width: int


def parameters_of(kind: Kind) -> set[str]:
    """Names of the parameters that a kind of rows reads."""
    arrays: list[FloatArray | None] = []
    if isinstance(kind, TileKind):
        operands = (*(x for _, xs in kind.sums for x in xs), *(x for _, x in kind.loads))
        arrays += [x.array for x in operands if isinstance(x, LoadParameter)]
        arrays += [product.weight for product in kind.products]
    elif isinstance(kind, SoftmaxKind):
        arrays.append(kind.bias)
    return {array.name for array in arrays if isinstance(array, ParameterOf)}


Kind = TileKind | SoftmaxKind | RowSumKind | MatrixKind | SumKind | CopyKind


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
    if isinstance(kind, TileKind):
        return Cut(tile.rows, math.ceil(kind.width / tile.columns))
    if isinstance(kind, MatrixKind):
        return Cut(tile.rows, math.ceil(matrix_width(kind) / tile.columns))
    if isinstance(kind, SoftmaxKind | RowSumKind):
        return Cut(tile.rows, 1)
    if isinstance(kind, SumKind):
        down = math.ceil(kind.height / tile.rows) if kind.height else 1
        return Cut(0, down * math.ceil(kind.width / tile.columns))
    if isinstance(kind, CopyKind):
        return Cut(0, math.ceil(kind.n_rows * kind.width / FLAT))
    raise TypeError(f"{type(kind).__name__} is no kind")


def rows_per_vertex(kind: Kind) -> int:
    """Rows of tiles that a row of a function has: those of its matrix."""
    return kind.per_row if isinstance(kind, TileKind) else 1


def matrix_width(kind: MatrixKind) -> int:
    """Columns of what a kind with a matrix a vertex computes."""
    return kind.k * kind.n_columns if kind.form == "outer" else kind.n_columns
