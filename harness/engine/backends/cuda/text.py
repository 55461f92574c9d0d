"""Triton source of tile functions: array names, indexed rows, loads, stores and products.

Operators are written as expressions. kernels.py writes all kinds except TileKind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from dynbatch.harness.engine.backends.cuda.kinds import (
    Columns,
    Constant,
    Load,
    LoadParameter,
    Operand,
    Product,
    Row,
    RowList,
    Tile,
    TileKind,
    shorten_steps,
)
from dynbatch.harness.engine.backends.cuda.words import FloatArray, WordArray
from dynbatch.harness.engine.lowering.plan import Operation

EXPRESSIONS = {
    "add": "{0} + {1}",
    "sum": "{sum}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "bias": "{0} + {1}",
    "neg": "-{0}",
    "scale": "{value!r} * {0}",
    "shift": "{value!r} + {0}",
    "sigmoid": "sigmoid({0})",
    "tanh": "tanh({0})",
    # Comparisons propagate NaN, unlike a GPU's minimum and maximum.
    "relu": "tl.where({0} <= 0.0, 0.0, {0})",
    "exp": "tl.exp({0})",
    "log": "tl.log({0})",
    "square": "{0} * {0}",
    "sqrt": "tl.sqrt({0})",
    "sigmoid_gradient": "{0} * {1} * (1.0 - {1})",
    "tanh_gradient": "{0} * (1.0 - {1} * {1})",
    "relu_gradient": "tl.where({1} > 0.0, {0}, 0.0)",
}


def write_expression(operation: Operation) -> str:
    """Write the source of an operation."""
    total = " + ".join(operation.operands)
    return EXPRESSIONS[operation.operator].format(
        *operation.operands, value=operation.constant, sum=total
    )


# tanh as a rational function; harness/engine/cpu_kernels/elementwise.py derives its error. It uses
# only arithmetic, which Triton's interpreter and compiler both support.
FUNCTIONS = """
@triton.jit
def tanh(x):
    x = tl.where(x < -8.0, -8.0, tl.where(x > 8.0, 8.0, x))
    s = x * x
    p = -2.231464612930298e-8 + s * (6.365524581083284e-11 + s * -1.156428313665701e-13)
    p = 3.1493643471602792e-3 + s * (1.1642439822295911e-5 + s * p)
    p = 0.9999999982248846 + s * (0.1312434943208993 + s * p)
    q = 0.024674998906289915 + s * 2.612973711282404e-4
    q = 1.0 + s * (0.46457680935241213 + s * q)
    return x * p / q


@triton.jit
def sigmoid(x):
    return 0.5 * tanh(0.5 * x) + 0.5
"""


INDENT = "    "
# Steps of a loop over an inner dimension whose operands are loaded at the same time. A step waits
# for memory much longer than it multiplies.
N_STAGES = 5
# Header slots of programs, which precede those of int32 arrays: one for each kernel, and a second
# one of the forward kernel, for operators that run ahead on a second stream.
N_SLOTS = 5
AHEAD = N_SLOTS - 1


@dataclass(slots=True)
class Names:
    """Argument numbers of float arrays, and header slots of int32 arrays."""

    floats: dict[FloatArray, int] = field(default_factory=dict)
    words: dict[WordArray, int] = field(default_factory=dict)

    def name_argument(self, array: FloatArray) -> str:
        """Return the name of a float array's argument."""
        return f"p{self.floats.setdefault(array, len(self.floats))}"

    def assign_slot(self, array: WordArray) -> int:
        """Return the header slot that holds the offset of an int32 array."""
        return self.words.setdefault(array, N_SLOTS + len(self.words))


@dataclass(slots=True)
class TileText:
    """Source of one tile function, which the writers of kinds fill.

    Attributes:
        names: names that all tile functions of the kernel share.
    """

    names: Names
    per_row: int = 1
    lines: list[str] = field(default_factory=list)
    pointers: dict[str, None] = field(default_factory=dict)
    depth: int = 1
    _begun: dict[WordArray, str] = field(default_factory=dict)
    _rows: dict[Row, tuple[str, str]] = field(default_factory=dict)
    _lists: dict[RowList, str] = field(default_factory=dict)
    _n_names: int = 0

    def add(self, *lines: str) -> None:
        """Write lines at the current indentation."""
        self.lines += [INDENT * self.depth + line for line in lines]

    def make_name(self, prefix: str) -> str:
        """Return a new unique name."""
        self._n_names += 1
        return f"{prefix}{self._n_names}"

    def declare_pointer(self, array: FloatArray) -> str:
        """Return the name of a float array and make it an argument."""
        name = self.names.name_argument(array)
        self.pointers[name] = None
        return name

    def begin(self, array: WordArray) -> str:
        """Return the name of a pointer to the start of an int32 array."""
        if array not in self._begun:
            name = self._begun[array] = f"a{self.names.assign_slot(array)}"
            # Defined at the top, so that every later line can use it.
            self.lines.insert(0, f"{INDENT}{name} = words + tl.load(words + {name[1:]})")
        return self._begun[array]

    def forget_rows(self) -> None:
        """Discard row indices, because the rows change from here on."""
        self._rows.clear()
        self._lists.clear()

    # --- rows ---

    def load_row(self, row: Row) -> tuple[str, str]:
        """Return the names of a row's index vector and mask."""
        if row.through is None:
            return row.base.value, "live"
        if row not in self._rows:
            index, at = self.make_name("r"), _format_row_index(row)
            begin, other = self.begin(row.through), "-1" if row.optional else "0"
            self.add(f"{index} = tl.load({begin} + {at}, mask=live, other={other})")
            mask = "live"
            if row.optional:
                mask = self.make_name("o")
                self.add(f"{mask} = {index} >= 0", f"{index} = tl.where({mask}, {index}, 0)")
            self._rows[row] = (index, mask)
        return self._rows[row]

    def load_list_bounds(self, rows: RowList) -> str:
        """Return the suffix of a list's names: offsets f, lengths n, and the largest length t."""
        if rows not in self._lists:
            name = self._lists[rows] = self.make_name("e")
            at = f"{self.begin(rows.starts)} + {rows.base.value}"
            self.add(
                f"f{name} = tl.load({at}, mask=live, other=0)",
                f"n{name} = tl.load({at} + 1, mask=live, other=0) - f{name}",
                f"t{name} = tl.max(n{name}, 0)",
            )
        return self._lists[rows]

    def load_item(self, rows: RowList) -> tuple[str, str]:
        """Return the names of index and mask of the j-th item of every row's list."""
        name, mask, index = self.load_list_bounds(rows), self.make_name("o"), self.make_name("r")
        self.add(f"{mask} = j < n{name}")
        if rows.items is None:
            self.add(f"{index} = tl.where({mask}, f{name} + j, 0)")
        else:
            at = f"{self.begin(rows.items)} + f{name} + j"
            self.add(f"{index} = tl.load({at}, mask={mask}, other=0)")
        return index, mask

    # --- elements ---

    def format_element(
        self, columns: Columns, index: str, width: int, *, cols: str = "cols"
    ) -> str:
        """Return an expression for pointers to columns of rows.

        Args:
            width: width of a row of each vertex's matrix, used if per_row is above 1.
        """
        at = f"{self.declare_pointer(columns.array)} + {index}[:, None] * {columns.width}"
        if self.per_row > 1:
            at += f" + part[:, None] * {width}"
        start = f"{columns.start} + " if columns.start else ""
        return f"{at} + ({start}{cols})[None, :]"

    def mask(self, rows: str, inside: str) -> str:
        """Return the mask of a block.

        Args:
            rows: name of the mask of rows.
            inside: name of the mask of columns; empty: all columns.
        """
        return f"{rows}[:, None] & {inside}" if inside else f"{rows}[:, None]"

    def load_operand(
        self, name: str, operand: Operand, width: int, shape: str, inside: str
    ) -> None:
        """Write lines that assign an operand's block of this tile to a name."""
        if isinstance(operand, Constant):
            self.add(f"{name} = tl.full({shape}, {operand.value!r}, tl.float32)")
        elif isinstance(operand, LoadParameter):
            pointer, at = self.declare_pointer(operand.array), "cols"
            if operand.period:
                at = f"cols % {operand.period}"
            if operand.start:
                at = f"{operand.start} + {at}"
            mask = f"mask=cols < {width}, other=0.0"
            self.add(f"{name} = tl.load({pointer} + {at}, {mask})[None, :]")
        elif operand.same:
            self._load_one_column(name, operand, shape)
        elif isinstance(operand.columns.row, RowList):
            self._load_list(name, operand.columns, operand.columns.row, width, shape, inside)
        else:
            index, mask = self.load_row(operand.columns.row)
            element = self.format_element(operand.columns, index, width)
            self.add(f"{name} = tl.load({element}, mask={self.mask(mask, inside)}, other=0.0)")

    def _load_one_column(self, name: str, operand: Load, shape: str) -> None:
        row = operand.columns.row
        assert isinstance(row, Row)
        index, mask = self.load_row(row)
        at = f"{index} * {operand.columns.width} + {operand.columns.start}"
        value = (
            f"tl.load({self.declare_pointer(operand.columns.array)} + {at}, mask={mask}, other=0.0)"
        )
        self.add(f"{name} = tl.broadcast_to({value}[:, None], {shape})")

    def _load_list(
        self, name: str, columns: Columns, rows: RowList, width: int, shape: str, inside: str
    ) -> None:
        suffix = self.load_list_bounds(rows)
        self.add(f"{name} = tl.zeros({shape}, tl.float32)", f"for j in range(0, t{suffix}):")
        self.depth += 1
        index, on = self.load_item(rows)
        mask = self.mask(on, inside)
        element = self.format_element(columns, index, width)
        self.add(f"{name} += tl.load({element}, mask={mask}, other=0.0)")
        self.depth -= 1

    def store(self, columns: Columns, name: str, width: int, inside: str) -> None:
        """Write a line that stores a block of this tile."""
        assert isinstance(columns.row, Row)
        index, mask = self.load_row(columns.row)
        element = self.format_element(columns, index, width)
        self.add(f"tl.store({element}, {name}, mask={self.mask(mask, inside)})")


def _format_row_index(row: Row) -> str:
    at = row.base.value if row.stride == 1 else f"{row.base.value} * {row.stride}"
    return f"{at} + {row.at}" if row.at else at


def write_tile_kind(text: TileText, kind: TileKind, tile: Tile, precision: str) -> None:
    """Write the body of a TileKind's tile function."""
    inside = write_head(text, kind.width, tile, kind.per_row)
    shape = f"({tile.rows}, {tile.columns})"
    into = {product.into for product in kind.products}

    def begin(name: str, operands: Sequence[Operand]) -> None:
        for k, operand in enumerate(operands):
            text.load_operand(f"{name}_{k}", operand, kind.width, shape, inside)
        started = "".join(f" + {name}_{k}" for k in range(len(operands)))
        text.add(f"{name} = tl.zeros({shape}, tl.float32){started}")

    for name, operands in kind.sums:
        if name in into:
            begin(name, operands)
    _write_products(text, kind, tile, inside, precision)
    # Values that products do not need are loaded at their first use, which saves registers.
    later = {name: partial(begin, name, xs) for name, xs in kind.sums if name not in into}
    for name, operand in kind.loads:
        later[name] = partial(text.load_operand, name, operand, kind.width, shape, inside)
    for operation in kind.operations:
        for name in operation.operands:
            if name in later:
                later.pop(name)()
        text.add(f"{operation.name} = {write_expression(operation)}")
    for load in later.values():
        load()
    for store in kind.stores:
        text.store(store.columns, store.name, kind.width, inside)


def write_head(text: TileText, width: int, tile: Tile, per_row: int = 1) -> str:
    """Write the rows and columns of a tile.

    Returns:
        The name of the mask of columns; empty if no tile has columns past `width`.
    """
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
    for products in _group_by_x(kind):
        _write_loop(text, products, tile, inside, precision)
    if tile.spread:
        text.add(*(f"{name} += tl.sum(w{name}, 1)" for name in into))


def _group_by_x(kind: TileKind) -> Iterable[list[Product]]:
    """Group products that read the same rows, so that these are loaded once."""
    groups: dict[tuple[Columns, int], list[Product]] = {}
    for product in kind.products:
        groups.setdefault((product.x, product.k), []).append(product)
    return groups.values()


def _write_loop(
    text: TileText, products: list[Product], tile: Tile, inside: str, precision: str
) -> None:
    """Write one loop over the inner dimension, which tiles without any row to read skip."""
    x, k = products[0].x, products[0].k
    tile, depth = shorten_steps(tile, k), text.depth
    if isinstance(x.row, RowList):
        suffix = text.load_list_bounds(x.row)
        text.add(f"if t{suffix} > 0:")
        text.depth += 1
    else:
        index, mask = text.load_row(x.row)
        if x.row.optional:
            text.add(f"if tl.max({mask}.to(tl.int32), 0) > 0:")
            text.depth += 1
    # Triton pipelines loops with tl.dot; another one, only where that is requested.
    stages = f", num_stages={N_STAGES}" if tile.spread else ""
    text.add(f"for k0 in tl.range(0, {k}, {tile.inner}{stages}):")
    text.depth += 1
    text.add(f"k = k0 + tl.arange(0, {tile.inner})")
    within = f"(k < {k})" if k % tile.inner else ""
    if isinstance(x.row, RowList):
        text.add(
            f"a = tl.zeros(({tile.rows}, {tile.inner}), tl.float32)",
            f"for j in range(0, t{suffix}):",
        )
        text.depth += 1
        index, mask = text.load_item(x.row)
    element = text.format_element(x, index, k, cols="k")
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
    masks = [f"{within}[:, None]"] * bool(within) + [inside] * bool(inside)
    mask = f", mask={' & '.join(masks)}, other=0.0" if masks else ""
    at = f"({product.row} + k[:, None]) * {product.leading} + {product.column} + cols[None, :]"
    text.add(f"w = tl.load({text.declare_pointer(product.weight)} + {at}{mask})")
    into = product.into
    if tile.spread:
        text.add(f"w{into} += a[:, :, None] * w[None, :, :]")
    else:
        text.add(format_dot(into, "a", "w", precision))


def format_dot(into: str, left: str, right: str, precision: str) -> str:
    """Return a line that adds a product to a float32 tile, with factors rounded to a precision."""
    if precision == "bf16":
        factors = (f"{factor}.to(tl.bfloat16).to(ROUNDED)" for factor in (left, right))
        return f"{into} = tl.dot({', '.join(factors)}, {into})"
    return f'{into} = tl.dot({left}, {right}, {into}, input_precision="{precision}")'
