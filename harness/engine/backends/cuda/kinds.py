"""Descriptions of fused kernels as data: rows, columns, products, and kinds made of them.

A kind describes one tile function of the generated module; an instruction of a device program runs
it over a range of rows. This module does not depend on Triton.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum

from dynbatch.harness.engine.backends.cuda.words import FloatArray, ParameterOf, WordArray
from dynbatch.harness.engine.lowering.plan import Operation


class Base(StrEnum):
    """Row numbering of a kind: rows (or edges) of its function, or rows of the states."""

    ROWS = "rows"
    STATES = "states"


@dataclass(frozen=True, slots=True)
class Row:
    """Row of an array that a row of a kind accesses, directly or through an index.

    Attributes:
        through: index array; None: the row itself.
        stride: with `at`: the index is element base * stride + at.
        at: see `stride`.
        optional: whether the index may be -1, which means a row of zeros.
    """

    base: Base = Base.ROWS
    through: WordArray | None = None
    stride: int = 1
    at: int = 0
    optional: bool = False


@dataclass(frozen=True, slots=True)
class RowList:
    """Any number of rows of an array, which are summed.

    Attributes:
        starts: offsets; the list of a row has items starts[base] to starts[base + 1].
        items: index array of the rows; None: the item numbers are the rows.
    """

    starts: WordArray
    items: WordArray | None
    base: Base = Base.ROWS


def has_state_rows(value: object) -> bool:
    """Return whether a kind, or a part of one, accesses rows by their number among the states."""
    if isinstance(value, Row | RowList) and value.base is Base.STATES:
        return True
    if isinstance(value, tuple):
        return any(map(has_state_rows, value))
    return is_dataclass(value) and any(
        has_state_rows(getattr(value, item.name)) for item in fields(value)
    )


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of the rows of an array.

    Attributes:
        width: elements between rows of the array.
    """

    array: FloatArray
    row: Row | RowList
    width: int
    start: int

    def shift(self, by: int) -> Columns:
        """Return the columns that start `by` columns later."""
        return Columns(self.array, self.row, self.width, self.start + by)


@dataclass(frozen=True, slots=True)
class Load:
    """Operand read from columns, position by position.

    Attributes:
        same: broadcast the first column to all positions.
    """

    columns: Columns
    same: bool = False


@dataclass(frozen=True, slots=True)
class LoadParameter:
    """Operand read from a vector, equal in all rows.

    Attributes:
        period: number of elements after which the vector repeats; 0: it does not repeat.
    """

    array: FloatArray
    start: int
    period: int = 0


@dataclass(frozen=True, slots=True)
class Constant:
    """One value at all positions."""

    value: float


Operand = Load | LoadParameter | Constant


@dataclass(frozen=True, slots=True)
class Product:
    """Product of x and a block of a matrix, added to a value.

    Attributes:
        leading: elements between rows of the matrix.
    """

    into: str
    x: Columns
    k: int
    weight: FloatArray
    leading: int
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Store:
    """Write of a value to columns."""

    columns: Columns
    name: str


@dataclass(frozen=True, slots=True)
class TileKind:
    """Products into registers, then operators on them and on loads, then stores.

    Attributes:
        sums: names of values and the operands whose sum they start with; products are added to
            them.
        per_row: rows of each vertex's matrix; each of them is one row of a tile.
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
    """Loss log(sum exp x) - x[label] of rows x = logits + bias, and its gradient.

    Attributes:
        bias: vector added to the logits; None: 0.
        log_sum: destination of log(sum exp x).
        gradient: destination of (softmax - one-hot) * dy.
        dy: gradient of the loss; None: 1.
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
    """Sum over the columns of every row."""

    x: Columns
    n_columns: int
    out: Columns


class MatrixForm(StrEnum):
    """Forms of a product with a vertex's own matrix A: x A, x A^T, or A = x^T y."""

    APPLY = "apply"
    APPLY_TRANSPOSED = "apply_transposed"
    OUTER = "outer"


@dataclass(frozen=True, slots=True)
class MatrixKind:
    """Product of x with a matrix of the vertex, or outer product of x and y.

    Attributes:
        y: the matrix, row by row, or the right vector of an outer product.
    """

    form: MatrixForm
    x: Columns
    y: Columns
    out: Columns
    k: int
    n_columns: int


@dataclass(frozen=True, slots=True)
class Summand:
    """Gradient contribution x^T dy of one function's rows.

    Attributes:
        x: left operand; None: the contribution is the sum of dy over the rows.
        count: array with the function's number of rows in the mini-batch; None: the rows of the
            instruction.
    """

    dy: Columns
    x: Columns | None = None
    count: WordArray | None = None
    per_row: int = 1


@dataclass(frozen=True, slots=True)
class SumKind:
    """Sum of contributions to a block of a parameter's gradient.

    Attributes:
        gradient: the gradient, or partial sums of the block.
        leading: elements between rows of the gradient.
        height: rows of the block; 0 for a vector.
        adds: whether the sum is added to the present value instead of replacing it.
        parts: number of equal ranges of the contributing rows; each has a sum of its own, `width`
            columns after the one before.
    """

    gradient: FloatArray
    leading: int
    row: int
    column: int
    height: int
    width: int
    summands: tuple[Summand, ...]
    adds: bool
    parts: int = 1


@dataclass(frozen=True, slots=True)
class CopyKind:
    """Copy of columns of one matrix to columns of another, for all n_rows rows."""

    source: FloatArray
    source_leading: int
    source_column: int
    out: FloatArray
    out_leading: int
    out_column: int
    n_rows: int
    width: int


@dataclass(frozen=True, slots=True)
class TransposeKind:
    """Copy of a matrix (height, width) to its transpose."""

    source: FloatArray
    out: FloatArray
    height: int
    width: int


def find_parameters(kind: Kind) -> set[str]:
    """Return the names of the parameters that a kind of row tiles or a softmax reads.

    Transposed copies are left out: only updates change them.
    """
    arrays: list[FloatArray | None] = []
    if isinstance(kind, TileKind):
        operands = (*(x for _, xs in kind.sums for x in xs), *(x for _, x in kind.loads))
        arrays += [x.array for x in operands if isinstance(x, LoadParameter)]
        arrays += [product.weight for product in kind.products]
    elif isinstance(kind, SoftmaxKind):
        arrays.append(kind.bias)
    return {array.name for array in arrays if isinstance(array, ParameterOf)}


Kind = TileKind | SoftmaxKind | RowSumKind | MatrixKind | SumKind | CopyKind | TransposeKind


@dataclass(frozen=True, slots=True)
class UnbatchedKind:
    """Kind that runs once per mini-batch.

    Attributes:
        n_rows: number of its rows, or an array with an element for each of them.
    """

    kind: Kind
    phase: int
    n_rows: int | WordArray = 1


MANY = 2**31 - 1  # any number of rows
FLAT = 1024  # elements of a tile without rows and columns
MIN_INNER = 16  # of Triton's tl.dot


@dataclass(frozen=True, slots=True)
class Tile:
    """Sizes of a tile, all powers of two.

    Attributes:
        inner: elements of the inner dimension per step.
        spread: split the inner dimension over the threads of a program and reduce at the end, which
            keeps threads busy if there are few rows.
    """

    rows: int
    columns: int
    inner: int
    spread: bool = False

    def __post_init__(self) -> None:
        for size in (self.rows, self.columns, self.inner):
            if size < 1 or size & (size - 1):
                raise ValueError(f"expected sizes that are powers of two, got {self}")


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tiles of all forms of kinds.

    Attributes:
        products: (most rows, tile) of kinds with products; the last entry is for any number of
            rows. With large tiles, a level of few rows would have too few tiles to keep all
            processors busy. Measured on an H200 with Tree-LSTM at hidden 256 (docs/gpu.md).
        plain: tile of kinds without products, of matrices and of copies.
        square: tile of transposes.
    """

    products: tuple[tuple[int, Tile], ...] = (
        (32, Tile(4, 8, 64, spread=True)),
        (96, Tile(16, 16, 64)),
        (256, Tile(16, 32, 32)),
        (MANY, Tile(32, 32, 32)),
    )
    plain: Tile = Tile(16, 64, 1)
    sums: Tile = Tile(64, 64, 32)
    square: Tile = Tile(32, 32, 1)
    wide_rows: Tile = Tile(4, 256, 1)

    def __post_init__(self) -> None:
        limits = [limit for limit, _ in self.products]
        if limits != sorted(set(limits)) or limits[-1:] != [MANY]:
            raise ValueError(
                f"expected row limits in ascending order, ending with {MANY}, got {limits}"
            )

    def select_tiles(self, kind: Kind) -> tuple[Tile, ...]:
        """Return the tiles of a kind, those for few rows first."""
        if isinstance(kind, TileKind):
            return tuple(tile for _, tile in self.products) if kind.products else (self.plain,)
        if isinstance(kind, SumKind):
            return (self.sums,)
        if isinstance(kind, TransposeKind):
            return (self.square,)
        if isinstance(kind, SoftmaxKind | RowSumKind):
            return (self.wide_rows,)
        return (self.plain,)


def shorten_steps(tile: Tile, k: int) -> Tile:
    """Return a tile that multiplies k columns in at least two steps if possible.

    The compiler unrolls a single step and loads all of its operands first: it spilled up to 3.7 kB
    per thread.
    """
    inner = tile.inner
    while not tile.spread and inner >= k and inner > MIN_INNER:
        inner //= 2
    return replace(tile, inner=inner)


def cut(kind: Kind, tile: Tile) -> tuple[int, int]:
    """Return the partition of a kind's work into tiles of a given size.

    Returns:
        Rows per tile, and the number of tiles across; 0 rows: this is the number of all tiles,
        whatever the number of rows.
    """
    if isinstance(kind, TileKind):
        return tile.rows, math.ceil(kind.width / tile.columns)
    if isinstance(kind, MatrixKind):
        return tile.rows, math.ceil(compute_matrix_width(kind) / tile.columns)
    if isinstance(kind, SoftmaxKind | RowSumKind):
        return tile.rows, 1
    if isinstance(kind, SumKind):
        down = math.ceil(kind.height / tile.rows) if kind.height else 1
        return 0, down * math.ceil(kind.width / tile.columns) * kind.parts
    if isinstance(kind, TransposeKind):
        return 0, math.ceil(kind.height / tile.rows) * math.ceil(kind.width / tile.columns)
    return 0, math.ceil(kind.n_rows * kind.width / FLAT)


def compute_matrix_width(kind: MatrixKind) -> int:
    """Return the number of columns that a MatrixKind computes per vertex."""
    return kind.k * kind.n_columns if kind.form == "outer" else kind.n_columns
