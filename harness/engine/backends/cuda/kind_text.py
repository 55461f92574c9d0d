"""Text of every kind: gradients of parameters, a matrix a vertex and updates here."""

from __future__ import annotations

from functools import singledispatch

from harness.engine.backends.cuda.kinds import (
    CopyKind,
    Kind,
    Load,
    MatrixForm,
    MatrixKind,
    Row,
    RowSumKind,
    SoftmaxKind,
    StepKind,
    SumKind,
    Summand,
    TableStepKind,
    TileKind,
    TotalKind,
)
from harness.engine.backends.cuda.row_text import write_row_sum, write_softmax, write_total
from harness.engine.backends.cuda.text import TileText
from harness.engine.backends.cuda.tile_text import dot_text, write_head, write_tile_kind
from harness.engine.backends.cuda.tiles import FLAT, Tile, matrix_width


@singledispatch
def write_kind(kind: Kind, text: TileText, tile: Tile, precision: str) -> None:
    """Write the body of a kind's tile function."""
    raise TypeError(f"{type(kind).__name__} is no kind")


@write_kind.register
def _tiles(kind: TileKind, text: TileText, tile: Tile, precision: str) -> None:
    write_tile_kind(text, kind, tile, precision)


@write_kind.register
def _softmax(kind: SoftmaxKind, text: TileText, tile: Tile, precision: str) -> None:
    write_softmax(kind, text, tile)


@write_kind.register
def _row_sum(kind: RowSumKind, text: TileText, tile: Tile, precision: str) -> None:
    write_row_sum(kind, text, tile)


@write_kind.register
def _total(kind: TotalKind, text: TileText, tile: Tile, precision: str) -> None:
    write_total(kind, text)


@write_kind.register
def _matrix(kind: MatrixKind, text: TileText, tile: Tile, precision: str) -> None:
    width = matrix_width(kind)
    inside = write_head(text, width, tile)
    x_row, y_row = kind.x.row, kind.y.row
    assert isinstance(x_row, Row)
    assert isinstance(y_row, Row)
    (x_index, x_mask), (y_index, y_mask) = text.row(x_row), text.row(y_row)
    x, y = text.pointer(kind.x.array), text.pointer(kind.y.array)
    if kind.form is MatrixForm.OUTER:
        left = text.element(kind.x, x_index, width, cols=f"cols // {kind.n_columns}")
        right = text.element(kind.y, y_index, width, cols=f"cols % {kind.n_columns}")
        text.add(
            f"v = tl.load({left}, mask={text.mask(x_mask, inside)}, other=0.0)",
            f"v = v * tl.load({right}, mask={text.mask(y_mask, inside)}, other=0.0)",
        )
    else:
        transposed = kind.form is MatrixForm.APPLY_TRANSPOSED
        at = f"cols * {kind.k} + k" if transposed else f"k * {kind.n_columns} + cols"
        matrix = f"{y} + {y_index}[:, None] * {kind.y.width} + ({kind.y.start} + {at})[None, :]"
        vector = f"{x} + {x_index} * {kind.x.width} + {kind.x.start} + k"
        text.add(
            f"v = tl.zeros(({tile.rows}, {tile.columns}), tl.float32)",
            f"for k in range(0, {kind.k}):",
        )
        text.depth += 1
        text.add(
            f"xk = tl.load({vector}, mask={x_mask}, other=0.0)",
            f"v += xk[:, None] * tl.load({matrix}, mask={text.mask(y_mask, inside)}, other=0.0)",
        )
        text.depth -= 1
    text.store(kind.out, "v", width, inside)


@write_kind.register
def _sum(kind: SumKind, text: TileText, tile: Tile, precision: str) -> None:
    """A block of a gradient: a loop over the rows of each function that adds to it."""
    across = -(-kind.width // tile.columns)
    text.add(
        f"j = (tile % {across}) * {tile.columns} + tl.arange(0, {tile.columns})",
        f"in_j = j < {kind.width}",
    )
    if kind.height:
        text.add(
            f"i = (tile // {across}) * {tile.rows} + tl.arange(0, {tile.rows})",
            f"in_i = i < {kind.height}",
            f"total = tl.zeros(({tile.rows}, {tile.columns}), tl.float32)",
        )
    else:
        text.add(f"total = tl.zeros(({tile.columns},), tl.float32)")
    for summand in kind.summands:
        _add_rows(text, kind, summand, tile, precision)
    out = text.pointer(kind.gradient)
    if kind.height:
        place = f"{out} + ({kind.row} + i)[:, None] * {kind.leading} + ({kind.column} + j)[None, :]"
        mask = "in_i[:, None] & in_j[None, :]"
    else:
        place, mask = f"{out} + {kind.column} + j", "in_j"
    if kind.adds:
        text.add(f"total += tl.load({place}, mask={mask}, other=0.0)")
    text.add(f"tl.store({place}, total, mask={mask})")


def _add_rows(text: TileText, kind: SumKind, summand: Summand, tile: Tile, precision: str) -> None:
    name, dy, x = text.own("q"), summand.dy, summand.x
    if summand.count is None:
        text.add(f"count{name} = n", f"first{name} = start", f"first_state{name} = state_row")
    else:
        count = f"tl.load({text.begin(summand.count)})"
        zero = "start * 0"
        text.add(f"count{name} = {count}", f"first{name} = {zero}", f"first_state{name} = {zero}")
    text.add(f"for m0 in range(0, count{name} * {summand.per_row}, {tile.inner}):")
    text.depth += 1
    text.add(f"m = m0 + tl.arange(0, {tile.inner})", f"live = m < count{name} * {summand.per_row}")
    if summand.per_row > 1:
        text.add(f"part = m % {summand.per_row}", f"m = m // {summand.per_row}")
    text.add(f"rows = first{name} + m", f"states = first_state{name} + m")
    text.forget_rows()
    assert isinstance(dy.row, Row)
    index, mask = text.row(dy.row)
    part = f" + part[:, None] * {kind.width}" if summand.per_row > 1 else ""
    at = f"{text.pointer(dy.array)} + {index}[:, None] * {dy.width}{part}"
    at += f" + ({dy.start} + j)[None, :]"
    text.add(f"right = tl.load({at}, mask={mask}[:, None] & in_j[None, :], other=0.0)")
    if x is None:
        text.add("total += tl.sum(right, 0)")
    else:
        assert isinstance(x.row, Row)
        index, mask = text.row(x.row)
        part = f" + part[None, :] * {kind.height}" if summand.per_row > 1 else ""
        at = f"{text.pointer(x.array)} + {index}[None, :] * {x.width}{part}"
        at += f" + ({x.start} + i)[:, None]"
        text.add(
            f"left = tl.load({at}, mask={mask}[None, :] & in_i[:, None], other=0.0)",
            dot_text("total", "left", "right", precision),
        )
    text.depth -= 1
    text.forget_rows()


def _flat(text: TileText, n_rows: int, width: int) -> None:
    text.add(
        f"at = tile * {FLAT} + tl.arange(0, {FLAT})",
        f"live = at < {n_rows * width}",
        f"row = at // {width}",
        f"column = at % {width}",
    )


@write_kind.register
def _copy(kind: CopyKind, text: TileText, tile: Tile, precision: str) -> None:
    _flat(text, kind.n_rows, kind.width)
    source, out = text.pointer(kind.source), text.pointer(kind.out)
    value = f"{source} + row * {kind.source_leading} + {kind.source_column} + column"
    place = f"{out} + row * {kind.out_leading} + {kind.out_column} + column"
    text.add(f"x = tl.load({value}, mask=live, other=0.0)", f"tl.store({place}, x, mask=live)")


@write_kind.register
def _step(kind: StepKind, text: TileText, tile: Tile, precision: str) -> None:
    _flat(text, kind.n_rows, kind.width)
    parameter, gradient = text.pointer(kind.parameter), text.pointer(kind.gradient)
    place = f"{parameter} + row * {kind.leading} + {kind.column} + column"
    value = f"{gradient} + row * {kind.gradient_leading} + {kind.gradient_column} + column"
    text.add(
        f"g = tl.load({value}, mask=live, other=0.0)",
        f"w = tl.load({place}, mask=live, other=0.0)",
        f"tl.store({place}, w - tl.load(rate) * g, mask=live)",
    )


@write_kind.register
def _table_step(kind: TableStepKind, text: TileText, tile: Tile, precision: str) -> None:
    inside = write_head(text, kind.width, tile)
    shape = f"({tile.rows}, {tile.columns})"
    text.operand("g", Load(kind.dy), kind.width, shape, inside)
    text.add(f"word = tl.load({text.begin(kind.words)} + rows, mask=live, other=0)")
    place = f"{text.pointer(kind.table)} + word[:, None] * {kind.width} + cols[None, :]"
    mask = text.mask("live", inside)
    text.add(
        f"w = tl.load({place}, mask={mask}, other=0.0)",
        f"tl.store({place}, w - tl.load(rate) * g, mask={mask})",
    )
