"""Text of kinds that compute tiles of rows: sums of products, and operators on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from harness.engine.backends.cuda.expressions import write_expression
from harness.engine.backends.cuda.kinds import Columns, Operand, Product, RowList, TileKind
from harness.engine.backends.cuda.text import TileText
from harness.engine.backends.cuda.tiles import Tile


def write_tile_kind(text: TileText, kind: TileKind, tile: Tile, precision: str) -> None:
    """Write the body of a tile function."""
    inside = write_head(text, kind.width, tile, kind.per_row)
    shape = f"({tile.rows}, {tile.columns})"
    into = {product.into for product in kind.products}

    def begin(name: str, operands: Sequence[Operand]) -> None:
        for k, operand in enumerate(operands):
            text.operand(f"{name}_{k}", operand, kind.width, shape, inside)
        started = "".join(f" + {name}_{k}" for k in range(len(operands)))
        text.add(f"{name} = tl.zeros({shape}, tl.float32){started}")

    for name, operands in kind.sums:
        if name in into:
            begin(name, operands)
    _write_products(text, kind, tile, inside, precision)
    # What products do not need is loaded where it is first read: each takes registers until then.
    later = {name: partial(begin, name, xs) for name, xs in kind.sums if name not in into}
    for name, operand in kind.loads:
        later[name] = partial(text.operand, name, operand, kind.width, shape, inside)
    for one in kind.operations:
        for name in one.operands:
            later.pop(name, _nothing)()
        text.add(f"{one.name} = {write_expression(one)}")
    for load in later.values():
        load()
    for store in kind.stores:
        text.store(store.columns, store.name, kind.width, inside)


def _nothing() -> None:
    """Nothing is left to be loaded."""


def write_head(text: TileText, width: int, tile: Tile, per_row: int = 1) -> str:
    """Which rows and columns a tile has; returns the mask of its columns, if some are outside."""
    across = -(-width // tile.columns)
    text.per_row = per_row
    text.add(
        f"m = (tile // {across}) * {tile.rows} + tl.arange(0, {tile.rows})",
        f"cols = (tile % {across}) * {tile.columns} + tl.arange(0, {tile.columns})",
    )
    if per_row > 1:
        text.add(f"live = m < n * {per_row}", f"part = m % {per_row}", f"m = m // {per_row}")
    else:
        text.add("live = m < n")
    text.add("rows = start + m", "states = state_row + m")
    if width % tile.columns == 0:
        return ""
    text.add(f"inside = (cols < {width})[None, :]")
    return "inside"


def _write_products(
    text: TileText, kind: TileKind, tile: Tile, inside: str, precision: str
) -> None:
    into = dict.fromkeys(product.into for product in kind.products)
    if tile.spread:
        shape = f"({tile.rows}, {tile.inner}, {tile.columns})"
        text.add(*(f"w{name} = tl.zeros({shape}, tl.float32)" for name in into))
    for products in _with_equal_x(kind):
        _write_loop(text, products, kind, tile, inside, precision)
    if tile.spread:
        text.add(*(f"{name} += tl.sum(w{name}, 1)" for name in into))


def _with_equal_x(kind: TileKind) -> Iterable[list[Product]]:
    """Products that read the same rows, which are then loaded once."""
    found: dict[tuple[Columns, int], list[Product]] = {}
    for product in kind.products:
        found.setdefault((product.x, product.k), []).append(product)
    return found.values()


def _write_loop(
    text: TileText,
    products: list[Product],
    kind: TileKind,
    tile: Tile,
    inside: str,
    precision: str,
) -> None:
    """One loop over the inner dimension; none where no row of the tile has anything to read."""
    x, k = products[0].x, products[0].k
    depth = text.depth
    if isinstance(x.row, RowList):
        suffix = text.listed(x.row)
        text.add(f"if t{suffix} > 0:")
        text.depth += 1
    else:
        index, mask = text.row(x.row)
        if x.row.optional:
            text.add(f"if tl.max({mask}.to(tl.int32), 0) > 0:")
            text.depth += 1
    text.add(f"for k0 in range(0, {k}, {tile.inner}):")
    text.depth += 1
    text.add(f"k = k0 + tl.arange(0, {tile.inner})")
    within = f"(k < {k})" if k % tile.inner else ""
    if isinstance(x.row, RowList):
        text.add(
            f"a = tl.zeros(({tile.rows}, {tile.inner}), tl.float32)",
            f"for j in range(0, t{suffix}):",
        )
        text.depth += 1
        index, mask = text.item(x.row, "j")
    element = text.element(x, index, k, cols="k")
    whole = text.mask(mask, f"{within}[None, :]" if within else "")
    load = f"tl.load({element}, mask={whole}, other=0.0)"
    text.add(f"a += {load}" if isinstance(x.row, RowList) else f"a = {load}")
    if isinstance(x.row, RowList):
        text.depth -= 1
    for product in products:
        _write_product(text, product, tile, within, inside, precision)
    text.depth = depth


def _write_product(
    text: TileText, product: Product, tile: Tile, within: str, inside: str, precision: str
) -> None:
    down, across = ("cols[None, :]", "k[:, None]") if product.transposed else (
        "k[:, None]", "cols[None, :]",
    )  # fmt: skip
    masks = [f"{within}[:, None]"] * bool(within) + [inside] * bool(inside)
    mask = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
    at = f"({product.row} + {down}) * {product.leading} + {product.column} + {across}"
    text.add(f"w = tl.load({text.pointer(product.weight)} + {at}{mask})")
    into = product.into
    if tile.spread:
        text.add(f"w{into} += a[:, :, None] * w[None, :, :]")
    else:
        text.add(dot_text(into, "a", "w", precision))


def dot_text(into: str, left: str, right: str, precision: str) -> str:
    """Add a product to a float32 tile, its factors rounded as a precision's name says."""
    if precision == "bf16":
        factors = (f"{one}.to(tl.bfloat16).to(ROUNDED)" for one in (left, right))
        return f"{into} = tl.dot({', '.join(factors)}, {into})"
    return f'{into} = tl.dot({left}, {right}, {into}, input_precision="{precision}")'
