"""Triton source of each kind: losses, row sums, parameter gradients and matrix products."""

from __future__ import annotations

from functools import singledispatch

from dynbatch.harness.engine.backends.cuda.kinds import (
    FLAT,
    Columns,
    CopyKind,
    Kind,
    MatrixForm,
    MatrixKind,
    Row,
    RowSumKind,
    SoftmaxKind,
    SumKind,
    Summand,
    Tile,
    TileKind,
    TransposeKind,
    compute_matrix_width,
)
from dynbatch.harness.engine.backends.cuda.text import (
    TileText,
    format_dot,
    write_head,
    write_tile_kind,
)

# With three stages, sums over whole functions were 4 % faster on an H200; on an A100, some kernels
# of two sums would spill 168 B per thread.
SUM_STAGES = 1


def _write_rows(text: TileText, tile: Tile) -> None:
    text.add(
        f"m = tile * {tile.rows} + tl.arange(0, {tile.rows})",
        "live = m < n",
        "rows = start + m",
        "states = state_row + m",
    )


def _open_column_loop(text: TileText, tile: Tile, n_columns: int) -> None:
    text.add(f"for c0 in range(0, {n_columns}, {tile.columns}):")
    text.depth += 1
    text.add(
        f"cols = c0 + tl.arange(0, {tile.columns})",
        f"within = live[:, None] & (cols < {n_columns})[None, :]",
    )


@singledispatch
def write_kind(kind: Kind, text: TileText, tile: Tile, precision: str) -> None:
    """Write the body of a kind's tile function."""
    raise TypeError(f"unknown kind {type(kind).__name__}")


@write_kind.register
def _write_tiles(kind: TileKind, text: TileText, tile: Tile, precision: str) -> None:
    write_tile_kind(text, kind, tile, precision)


@write_kind.register
def _write_softmax(kind: SoftmaxKind, text: TileText, tile: Tile, precision: str) -> None:
    """Write a loop over the classes for the sum of exponentials, then loss and gradient."""
    _write_rows(text, tile)
    index = _name_index(text, kind.logits)
    text.add(
        f"top = tl.full(({tile.rows},), float('-inf'), tl.float32)",
        f"total = tl.zeros(({tile.rows},), tl.float32)",
    )
    _open_logits_loop(text, kind, tile, index)
    text.add(
        "above = tl.maximum(top, tl.max(x, 1))",
        "total = total * tl.exp(top - above) + tl.sum(tl.exp(x - above[:, None]), 1)",
        "top = above",
    )
    text.depth -= 1
    label = text.begin(kind.label)
    text.add(f"label = tl.load({label} + rows, mask=live, other=0)")
    _write_loss(kind, text, index)
    if kind.gradient is not None or kind.biased is not None:
        _write_left_behind(kind, text, tile, index)


def _write_loss(kind: SoftmaxKind, text: TileText, index: str) -> None:
    if kind.loss is not None:
        at = f"{index} * {kind.logits.width} + {kind.logits.start} + label"
        logits = text.declare_pointer(kind.logits.array)
        text.add(f"picked = tl.load({logits} + {at}, mask=live, other=0.0)")
        if kind.bias is not None:
            text.add(
                f"picked += tl.load({text.declare_pointer(kind.bias)} + label, mask=live,"
                " other=0.0)"
            )
        _store_column(text, kind.loss, "(top - picked) + tl.log(total)")
    if kind.log_sum is not None:
        _store_column(text, kind.log_sum, "top + tl.log(total)")


def _write_left_behind(kind: SoftmaxKind, text: TileText, tile: Tile, index: str) -> None:
    """Write biased logits or gradients, possibly over the logits themselves."""
    if kind.dy is not None:
        at = f"{_name_index(text, kind.dy)} * {kind.dy.width} + {kind.dy.start}"
        text.add(
            f"dy = tl.load({text.declare_pointer(kind.dy.array)} + {at}, mask=live, other=0.0)"
        )
    written = [columns for columns in (kind.gradient, kind.biased) if columns is not None]
    for columns in written:
        _name_index(text, columns)  # defined before the loop
    if kind.gradient is not None:
        text.add("scale = 1.0 / total")
    text.add("tl.debug_barrier()")  # all threads have read the values that some now overwrite
    _open_logits_loop(text, kind, tile, index)
    if kind.biased is not None:
        _store_within(text, kind.biased, "x")
    if kind.gradient is not None:
        hot = "tl.where(cols[None, :] == label[:, None], 1.0, 0.0)"
        text.add(f"g = tl.exp(x - top[:, None]) * scale[:, None] - {hot}")
        if kind.dy is not None:
            text.add("g = g * dy[:, None]")
        _store_within(text, kind.gradient, "g")
    text.depth -= 1


def _name_index(text: TileText, columns: Columns) -> str:
    assert isinstance(columns.row, Row)
    return text.load_row(columns.row)[0]


def _open_logits_loop(text: TileText, kind: SoftmaxKind, tile: Tile, index: str) -> None:
    """Open a loop that loads a block of logits into x; columns past the last class are -inf."""
    _open_column_loop(text, tile, kind.n_classes)
    element = text.format_element(kind.logits, index, kind.n_classes)
    text.add(f"x = tl.load({element}, mask=within, other=0.0)")
    if kind.bias is not None:
        mask = f"mask=cols < {kind.n_classes}, other=0.0"
        text.add(f"x += tl.load({text.declare_pointer(kind.bias)} + cols, {mask})[None, :]")
    text.add(f"x = tl.where((cols < {kind.n_classes})[None, :], x, float('-inf'))")


def _store_column(text: TileText, columns: Columns, value: str) -> None:
    assert isinstance(columns.row, Row)
    index, mask = text.load_row(columns.row)
    at = f"{index} * {columns.width} + {columns.start}"
    text.add(f"tl.store({text.declare_pointer(columns.array)} + {at}, {value}, mask={mask})")


def _store_within(text: TileText, columns: Columns, value: str) -> None:
    element = text.format_element(columns, _name_index(text, columns), 1)
    text.add(f"tl.store({element}, {value}, mask=within)")


@write_kind.register
def _write_row_sum(kind: RowSumKind, text: TileText, tile: Tile, precision: str) -> None:
    """Write a loop over the columns that sums every row."""
    _write_rows(text, tile)
    index = _name_index(text, kind.x)
    text.add(f"total = tl.zeros(({tile.rows},), tl.float32)")
    _open_column_loop(text, tile, kind.n_columns)
    element = text.format_element(kind.x, index, kind.n_columns)
    text.add(f"total += tl.sum(tl.load({element}, mask=within, other=0.0), 1)")
    text.depth -= 1
    _store_column(text, kind.out, "total")


@write_kind.register
def _write_matrix(kind: MatrixKind, text: TileText, tile: Tile, precision: str) -> None:
    width = compute_matrix_width(kind)
    inside = write_head(text, width, tile)
    x_row, y_row = kind.x.row, kind.y.row
    assert isinstance(x_row, Row)
    assert isinstance(y_row, Row)
    (x_index, x_mask), (y_index, y_mask) = text.load_row(x_row), text.load_row(y_row)
    x, y = text.declare_pointer(kind.x.array), text.declare_pointer(kind.y.array)
    if kind.form is MatrixForm.OUTER:
        left = text.format_element(kind.x, x_index, width, cols=f"cols // {kind.n_columns}")
        right = text.format_element(kind.y, y_index, width, cols=f"cols % {kind.n_columns}")
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
def _write_sum(kind: SumKind, text: TileText, tile: Tile, precision: str) -> None:
    """Write a block of a gradient: one loop per function over the rows that contribute."""
    across = -(-kind.width // tile.columns)
    if kind.parts > 1:
        text.add(f"part = tile % {kind.parts}", f"tile = tile // {kind.parts}")
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
    out = text.declare_pointer(kind.gradient)
    column = f"{kind.column} + part * {kind.width}" if kind.parts > 1 else f"{kind.column}"
    if kind.height:
        target = f"{out} + ({kind.row} + i)[:, None] * {kind.leading} + ({column} + j)[None, :]"
        mask = "in_i[:, None] & in_j[None, :]"
    else:
        target, mask = f"{out} + {column} + j", "in_j"
    if kind.adds:
        text.add(f"total += tl.load({target}, mask={mask}, other=0.0)")
    text.add(f"tl.store({target}, total, mask={mask})")


def _add_rows(text: TileText, kind: SumKind, summand: Summand, tile: Tile, precision: str) -> None:
    name, dy, x = text.make_name("q"), summand.dy, summand.x
    if summand.count is None:
        text.add(f"count{name} = n", f"first{name} = start", f"first_state{name} = state_row")
    else:
        count = f"tl.load({text.begin(summand.count)})"
        zero = "start * 0"
        text.add(f"count{name} = {count}", f"first{name} = {zero}", f"first_state{name} = {zero}")
    text.add(f"end{name} = count{name} * {summand.per_row}")
    begin = "0"
    if kind.parts > 1:
        begin = f"begin{name}"
        text.add(
            f"size{name} = tl.cdiv(tl.cdiv(end{name}, {tile.inner}), {kind.parts}) * {tile.inner}",
            f"{begin} = part * size{name}",
            f"end{name} = tl.minimum(end{name}, {begin} + size{name})",
        )
    loop = f"tl.range({begin}, end{name}, {tile.inner}, num_stages={SUM_STAGES})"
    text.add(f"for m0 in {loop}:")
    text.depth += 1
    text.add(f"m = m0 + tl.arange(0, {tile.inner})", f"live = m < end{name}")
    if summand.per_row > 1:
        text.add(f"own = m % {summand.per_row}", f"m = m // {summand.per_row}")
    text.add(f"rows = first{name} + m", f"states = first_state{name} + m")
    text.forget_rows()
    assert isinstance(dy.row, Row)
    index, mask = text.load_row(dy.row)
    part = f" + own[:, None] * {kind.width}" if summand.per_row > 1 else ""
    at = f"{text.declare_pointer(dy.array)} + {index}[:, None] * {dy.width}{part}"
    at += f" + ({dy.start} + j)[None, :]"
    text.add(f"right = tl.load({at}, mask={mask}[:, None] & in_j[None, :], other=0.0)")
    if x is None:
        text.add("total += tl.sum(right, 0)")
    else:
        assert isinstance(x.row, Row)
        index, mask = text.load_row(x.row)
        part = f" + own[None, :] * {kind.height}" if summand.per_row > 1 else ""
        at = f"{text.declare_pointer(x.array)} + {index}[None, :] * {x.width}{part}"
        at += f" + ({x.start} + i)[:, None]"
        text.add(
            f"left = tl.load({at}, mask={mask}[None, :] & in_i[:, None], other=0.0)",
            format_dot("total", "left", "right", precision),
        )
    text.depth -= 1
    text.forget_rows()


@write_kind.register
def _write_copy(kind: CopyKind, text: TileText, tile: Tile, precision: str) -> None:
    text.add(
        f"at = tile * {FLAT} + tl.arange(0, {FLAT})",
        f"live = at < {kind.n_rows * kind.width}",
        f"row = at // {kind.width}",
        f"column = at % {kind.width}",
    )
    source, out = text.declare_pointer(kind.source), text.declare_pointer(kind.out)
    value = f"{source} + row * {kind.source_leading} + {kind.source_column} + column"
    target = f"{out} + row * {kind.out_leading} + {kind.out_column} + column"
    text.add(f"x = tl.load({value}, mask=live, other=0.0)", f"tl.store({target}, x, mask=live)")


@write_kind.register
def _write_transpose(kind: TransposeKind, text: TileText, tile: Tile, precision: str) -> None:
    across = -(-kind.width // tile.columns)
    source, out = text.declare_pointer(kind.source), text.declare_pointer(kind.out)
    text.add(
        f"i = (tile // {across}) * {tile.rows} + tl.arange(0, {tile.rows})",
        f"j = (tile % {across}) * {tile.columns} + tl.arange(0, {tile.columns})",
        f"there = (i < {kind.height})[:, None] & (j < {kind.width})[None, :]",
        f"x = tl.load({source} + i[:, None] * {kind.width} + j[None, :], mask=there, other=0.0)",
        f"target = {out} + j[:, None] * {kind.height} + i[None, :]",
        "tl.store(target, tl.trans(x), mask=tl.trans(there))",
    )
