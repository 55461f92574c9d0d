"""What fused kernels do, as data: rows, columns, products, and the kinds that are made of them.

A kind is one tile function of the generated module; an instruction of the device program runs it
over a range of rows. Nothing here knows Triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness.engine.backends.cuda.arrays import FloatArray, ParameterOf, WordArray
from harness.engine.lowering.operations import Operation


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


@dataclass(frozen=True, slots=True)
class TotalKind:
    """The sum of one column over all rows of a function, as one element of the totals."""

    x: Columns
    count: WordArray
    totals: FloatArray
    place: int


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


@dataclass(frozen=True, slots=True)
class StepKind:
    """One step of SGD: columns of a parameter less the learning rate times those of a gradient."""

    parameter: FloatArray
    leading: int
    column: int
    gradient: FloatArray
    gradient_leading: int
    gradient_column: int
    n_rows: int
    width: int


@dataclass(frozen=True, slots=True)
class TableStepKind:
    """One step of SGD on the looked-up rows of a table; row by row, so that it can be repeated.

    words: which rows of the table. dy: of each of them the list of gradients, summed.
    """

    table: FloatArray
    width: int
    words: WordArray
    dy: Columns


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


Kind = (
    TileKind
    | SoftmaxKind
    | RowSumKind
    | TotalKind
    | MatrixKind
    | SumKind
    | CopyKind
    | StepKind
    | TableStepKind
)
