"""Text of kinds that need whole rows: losses, sums over columns, and the sum of all losses."""

from __future__ import annotations

from harness.engine.backends.cuda.kinds import Columns, Row, RowSumKind, SoftmaxKind, TotalKind
from harness.engine.backends.cuda.text import TileText
from harness.engine.backends.cuda.tiles import FLAT, Tile


def _whole_rows(text: TileText, tile: Tile) -> None:
    text.add(
        f"m = tile * {tile.rows} + tl.arange(0, {tile.rows})",
        "live = m < n",
        "rows = start + m",
        "states = state_row + m",
    )


def _column_loop(text: TileText, tile: Tile, n_columns: int) -> None:
    text.add(f"for c0 in range(0, {n_columns}, {tile.columns}):")
    text.depth += 1
    text.add(
        f"cols = c0 + tl.arange(0, {tile.columns})",
        f"within = live[:, None] & (cols < {n_columns})[None, :]",
    )


def write_softmax(kind: SoftmaxKind, text: TileText, tile: Tile) -> None:
    """A loop over the classes for the sum of exponentials, and one for what is left behind."""
    _whole_rows(text, tile)
    index = _index(text, kind.logits)
    text.add(
        f"top = tl.full(({tile.rows},), float('-inf'), tl.float32)",
        f"total = tl.zeros(({tile.rows},), tl.float32)",
    )
    _logits_loop(text, kind, tile, index)
    text.add(
        "above = tl.maximum(top, tl.max(x, 1))",
        "total = total * tl.exp(top - above) + tl.sum(tl.exp(x - above[:, None]), 1)",
        "top = above",
    )
    text.depth -= 1
    label = text.begin(kind.label)
    text.add(
        "log_sum = top + tl.log(total)", f"label = tl.load({label} + rows, mask=live, other=0)"
    )
    _write_loss(kind, text, index)
    if kind.gradient is not None or kind.biased is not None:
        _write_left_behind(kind, text, tile, index)


def _write_loss(kind: SoftmaxKind, text: TileText, index: str) -> None:
    if kind.loss is not None:
        at = f"{index} * {kind.logits.width} + {kind.logits.start} + label"
        logits = text.pointer(kind.logits.array)
        text.add(f"picked = tl.load({logits} + {at}, mask=live, other=0.0)")
        if kind.bias is not None:
            text.add(f"picked += tl.load({text.pointer(kind.bias)} + label, mask=live, other=0.0)")
        _store_column(text, kind.loss, "log_sum - picked")
    if kind.log_sum is not None:
        _store_column(text, kind.log_sum, "log_sum")


def _write_left_behind(kind: SoftmaxKind, text: TileText, tile: Tile, index: str) -> None:
    """Biased logits, or gradients, where the logits themselves may be."""
    if kind.dy is not None:
        at = f"{_index(text, kind.dy)} * {kind.dy.width} + {kind.dy.start}"
        text.add(f"dy = tl.load({text.pointer(kind.dy.array)} + {at}, mask=live, other=0.0)")
    written = [columns for columns in (kind.gradient, kind.biased) if columns is not None]
    for columns in written:
        _index(text, columns)  # before the loop
    text.add("tl.debug_barrier()")  # all threads have read what some are about to write over
    _logits_loop(text, kind, tile, index)
    if kind.biased is not None:
        _store_within(text, kind.biased, "x")
    if kind.gradient is not None:
        hot = "tl.where(cols[None, :] == label[:, None], 1.0, 0.0)"
        text.add(f"g = tl.exp(x - log_sum[:, None]) - {hot}")
        if kind.dy is not None:
            text.add("g = g * dy[:, None]")
        _store_within(text, kind.gradient, "g")
    text.depth -= 1


def _index(text: TileText, columns: Columns) -> str:
    assert isinstance(columns.row, Row)
    return text.row(columns.row)[0]


def _logits_loop(text: TileText, kind: SoftmaxKind, tile: Tile, index: str) -> None:
    """Begin a loop that has a block of logits in x; what is outside counts as nothing."""
    _column_loop(text, tile, kind.n_classes)
    element = text.element(kind.logits, index, kind.n_classes)
    text.add(f"x = tl.load({element}, mask=within, other=0.0)")
    if kind.bias is not None:
        mask = f"mask=cols < {kind.n_classes}, other=0.0"
        text.add(f"x += tl.load({text.pointer(kind.bias)} + cols, {mask})[None, :]")
    text.add(f"x = tl.where((cols < {kind.n_classes})[None, :], x, float('-inf'))")


def _store_column(text: TileText, columns: Columns, value: str) -> None:
    assert isinstance(columns.row, Row)
    index, mask = text.row(columns.row)
    at = f"{index} * {columns.width} + {columns.start}"
    text.add(f"tl.store({text.pointer(columns.array)} + {at}, {value}, mask={mask})")


def _store_within(text: TileText, columns: Columns, value: str) -> None:
    element = text.element(columns, _index(text, columns), 1)
    text.add(f"tl.store({element}, {value}, mask=within)")


def write_row_sum(kind: RowSumKind, text: TileText, tile: Tile) -> None:
    """A loop over the columns."""
    _whole_rows(text, tile)
    index = _index(text, kind.x)
    text.add(f"total = tl.zeros(({tile.rows},), tl.float32)")
    _column_loop(text, tile, kind.n_columns)
    element = text.element(kind.x, index, kind.n_columns)
    text.add(f"total += tl.sum(tl.load({element}, mask=within, other=0.0), 1)")
    text.depth -= 1
    _store_column(text, kind.out, "total")


def write_total(kind: TotalKind, text: TileText) -> None:
    """One program, which takes the rows in order."""
    text.add(
        f"count = tl.load({text.begin(kind.count)})",
        f"total = tl.zeros(({FLAT},), tl.float32)",
        f"for m0 in range(0, count, {FLAT}):",
    )
    text.depth += 1
    text.add(f"rows = m0 + tl.arange(0, {FLAT})", "live = rows < count")
    assert isinstance(kind.x.row, Row)
    index, mask = text.row(kind.x.row)
    at = f"{index} * {kind.x.width} + {kind.x.start}"
    text.add(f"total += tl.load({text.pointer(kind.x.array)} + {at}, mask={mask}, other=0.0)")
    text.depth -= 1
    text.add(f"tl.store({text.pointer(kind.totals)} + {kind.place}, tl.sum(total, 0))")
