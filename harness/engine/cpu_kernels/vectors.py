"""Matmul kernels with explicit vectors, for shapes where libraries are slower.

Compilers keep the sums of such loops in memory. These kernels are written with explicit vectors,
for a few rows by a few vectors of columns. The order of each sum depends only on the kind of kernel
(rows or dots) and on the number of lanes, so that any subset of the rows gives the same bits.
Libraries do not guarantee that: if the number of rows selects a library, its results agree with
these kernels within rounding.

Libraries are optimized for many rows: they pack their operands. GFLOP/s on one Zen 4 core, of these
kernels and of the better of oneDNN and OpenBLAS, by the number of rows of x:

                     1        2        4        8        16       32       64
    W 64 x 192       46, 46   79, 74   90, 88   94, 72   93, 83   93, 87   95, 91
    W 256 x 1 024    52, 46   96, 60   87, 73   91, 95   98, 94   96, 94   110, 108
    W^T 64 x 192     55, 50   97, 88   97, 96   96, 98   92, 100  96, 77   98, 89
    W^T 256 x 1 024  42, 41   64, 62   83, 57   86, 68   93, 34   105, 54  76, 67

x^T dy, 256 x 256, with 2, 8, 40, 400 and 1 500 rows: 62, 78, 109, 117 and 97 (these kernels); 49,
78, 101, 113 and 108 (libraries).

Matrices are transposed by squares, in registers: eight loads, 24 shuffles and eight stores. A loop
over single elements stores one per cycle: 512 x 768 takes 135 us on one Zen 4 core, and 75 us by
squares; 256 x 256 takes 22 and 11 us.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from dynbatch.harness.compiler.object_code import Loaded, get_host_target, load_cached
from dynbatch.harness.compiler.pointers import FLOAT_BYTES
from dynbatch.harness.compiler.registry import hash_modules

INT32, WORD, FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()


@contextmanager
def write_loop(builder: ir.IRBuilder, begin: Any, end: Any, step: Any) -> Iterator[Any]:
    """Write a loop around the instructions of the context, over begin, begin + step, ... < end."""
    before = builder.block
    body, behind = builder.append_basic_block(), builder.append_basic_block()
    builder.cbranch(builder.icmp_signed("<", begin, end), body, behind)
    builder.position_at_end(body)
    number = builder.phi(WORD)
    number.add_incoming(begin, before)
    yield number
    following = builder.add(number, step)
    number.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, end), body, behind)
    builder.position_at_end(behind)


def begin_function(module: ir.Module, name: str, n_arguments: int) -> tuple[ir.IRBuilder, Any]:
    """Start a function of int64 arguments without a result; return its builder and arguments."""
    kind = ir.FunctionType(ir.VoidType(), [WORD] * n_arguments)
    function = ir.Function(module, kind, name)
    return ir.IRBuilder(function.append_basic_block()), function.args


_FAST = ("contract", "nsz")  # lets LLVM fuse multiply and add


# Floats per vector: 16 with AVX-512, else 8 (AVX2, or two NEON registers).
LANES = 16 if "+avx512f" in get_host_target().features else 8
# AVX-512 has 32 registers, for 24 sums, 4 vectors of a matrix and one element. With 8 lanes, there
# are 16 registers, for 12 sums.
MAX_ROWS, MAX_VECTORS = 6, LANES // 4
# Columns that a matrix must have a multiple of. Without masked loads, whole vectors.
COLUMNS = 1 if "+avx" in get_host_target().features else LANES
DOTS, MAX_ROWS_OF_DOTS = 4, 5 if LANES == 16 else 2  # sums of dots: rows of the matrix, and of x
_DOTS, _ALIGNMENT = ir.VectorType(FLOAT, DOTS), INT32(FLOAT_BYTES)
VECTOR_BYTES = FLOAT_BYTES * LANES


class _Writer:
    """Writer of one kernel's instructions; places are byte offsets from an address."""

    def __init__(self, builder: ir.IRBuilder, lanes: int) -> None:
        self.builder = builder
        self.lanes, self.vector = lanes, ir.VectorType(FLOAT, lanes)

    def multiply_stride(self, stride: Any, k: int) -> Any:
        return self.builder.mul(stride, WORD(k))

    def _make_pointer(self, address: Any, offset: Any, kind: Any) -> Any:
        return self.builder.inttoptr(self.builder.add(address, offset), kind.as_pointer())

    def load(self, address: Any, offset: Any, kind: Any = None, mask: Any = None) -> Any:
        pointer = self._make_pointer(address, offset, kind or self.vector)
        if mask is None:
            return self.builder.load(pointer, align=FLOAT_BYTES)
        zeros = ir.Constant(self.vector, [0.0] * self.lanes)
        return self._call_masked("load", self.vector, [pointer, _ALIGNMENT, mask, zeros])

    def store(self, value: Any, address: Any, offset: Any, mask: Any = None) -> None:
        pointer = self._make_pointer(address, offset, value.type)
        if mask is None:
            self.builder.store(value, pointer, align=FLOAT_BYTES)
        else:
            self._call_masked("store", ir.VoidType(), [value, pointer, _ALIGNMENT, mask])

    def _call_masked(self, operation: str, result: Any, arguments: list[Any]) -> Any:
        name = f"llvm.masked.{operation}.v{self.lanes}f32.p0"
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        module = self.builder.module
        known = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(known, arguments)

    def mask_first(self, n: Any) -> Any:
        """Return the mask of the first n lanes."""
        numbers = ir.Constant(ir.VectorType(INT32, self.lanes), list(range(self.lanes)))
        limits = self.spread(self.builder.trunc(n, INT32))
        return self.builder.icmp_signed("<", numbers, limits)

    def spread(self, number: Any) -> Any:
        """Return a vector with a number in every lane."""
        undefined = ir.Constant(ir.VectorType(number.type, self.lanes), ir.Undefined)
        first = self.builder.insert_element(undefined, number, ir.Constant(INT32, 0))
        return self.shuffle(first, first, [0] * self.lanes)

    def shuffle(self, a: Any, b: Any, lanes: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(INT32, len(lanes)), lanes)
        return self.builder.shuffle_vector(a, b, mask)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=_FAST)

    def add_product(self, sums: Any, a: Any, b: Any) -> None:
        """Add the product of a and b to sums that stay in a register."""
        product = self.builder.fmul(a, b, flags=_FAST)
        self.builder.store(self.add(self.builder.load(sums), product), sums)

    def register(self, value: Any) -> Any:
        """Allocate a variable, which LLVM keeps in a register."""
        variable = self.builder.alloca(value.type)
        self.builder.store(value, variable)
        return variable

    def allocate_zeros(self) -> Any:
        """Allocate a vector that starts at zero."""
        return self.register(ir.Constant(self.vector, [0.0] * self.lanes))


SIDE = 8
# Shuffles of two rows into two of pairs, then of quadruples, then of columns: indices of elements.
_PAIRS = ([0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15])
_QUADS = ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15])
_HALVES = ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15])


def write_transpose(module: ir.Module) -> None:
    """Write transpose_square, which transposes 8 x 8 float32.

    Its arguments are the address of the source and its bytes per row, and the same of the result.
    """
    builder, (source, source_row, out, out_row) = begin_function(module, "transpose_square", 4)
    write = _Writer(builder, SIDE)
    rows = [write.load(source, write.multiply_stride(source_row, k)) for k in range(SIDE)]
    for k, column in enumerate(_transpose(write, rows)):
        write.store(column, out, write.multiply_stride(out_row, k))
    builder.ret_void()


def _transpose(write: _Writer, rows: list[Any]) -> list[Any]:
    def mix(a: Any, b: Any, places: tuple[list[int], list[int]]) -> tuple[Any, ...]:
        return tuple(write.shuffle(a, b, indices) for indices in places)

    pairs = [mix(rows[k], rows[k + 1], _PAIRS) for k in range(0, SIDE, 2)]
    low, high = (
        [q for i in (0, 1) for q in mix(pairs[k][i], pairs[k + 1][i], _QUADS)] for k in (0, 2)
    )
    both = [mix(a, b, _HALVES) for a, b in zip(low, high, strict=True)]
    return [first for first, _ in both] + [second for _, second in both]


def write_sums_of_rows(
    module: ir.Module, name: str, n_rows: int, n_vectors: int, lanes: int, *, is_partial: bool
) -> None:
    """Write the kernel of out = x w, or out = start + x w, for n_rows rows of x.

    It computes n_vectors vectors of columns of w, summed over the k rows of w. Its arguments: the
    address of x, bytes between its rows and between its elements; the address of w and bytes
    between its rows; the same of out; k; the same of start, 0 for zeros; and the number of columns
    in the last vector, which only partial ones read.

    Args:
        lanes: Floats per vector, DOTS times a power of two. Any CPU runs any number; LLVM splits
            vectors that are wider than its registers.
        is_partial: Whether the last vector may have fewer columns.
    """
    builder, arguments = begin_function(module, name, 11)
    x, x_row, x_next, w, w_row, out, out_row, k, start, start_row, n_last = arguments
    write = _Writer(builder, lanes)
    columns = [WORD(FLOAT_BYTES * lanes * j) for j in range(n_vectors)]
    masks = [None] * (n_vectors - 1) + [write.mask_first(n_last) if is_partial else None]

    def locate(row_bytes: Any) -> list[tuple[Any, Any]]:
        rows = [write.multiply_stride(row_bytes, i) for i in range(n_rows)]
        in_row = list(zip(columns, masks, strict=True))
        return [(builder.add(row, column), mask) for row in rows for column, mask in in_row]

    sums = [write.allocate_zeros() for _ in range(n_rows * n_vectors)]
    with builder.if_then(builder.icmp_signed("!=", start, WORD(0))):
        for (offset, mask), own in zip(locate(start_row), sums, strict=True):
            builder.store(write.load(start, offset, mask=mask), own)
    with write_loop(builder, WORD(0), k, WORD(1)) as i_of_k:
        row, element = builder.mul(w_row, i_of_k), builder.mul(x_next, i_of_k)
        vectors = [
            write.load(w, builder.add(row, column), mask=mask)
            for column, mask in zip(columns, masks, strict=True)
        ]
        for i in range(n_rows):
            offset = builder.add(write.multiply_stride(x_row, i), element)
            factor = write.spread(write.load(x, offset, FLOAT))
            for j, vector in enumerate(vectors):
                write.add_product(sums[i * n_vectors + j], factor, vector)
    for (offset, mask), own in zip(locate(out_row), sums, strict=True):
        write.store(builder.load(own), out, offset, mask)
    builder.ret_void()


def write_sums_of_dots(module: ir.Module, name: str, n_rows: int, lanes: int) -> None:
    """Write the kernel of out = x w^T, or out += x w^T, for n_rows rows of x by DOTS rows of w.

    Its arguments: the addresses of x, w and out, each followed by the bytes between rows; m, the
    length of a row of w in vectors; 0 to overwrite out, 1 to add to it. See `write_sums_of_rows`
    for the rest.
    """
    builder, arguments = begin_function(module, name, 8)
    x, x_row, w, w_row, out, out_row, m, adds = arguments
    write = _Writer(builder, lanes)
    sums = [[write.allocate_zeros() for _ in range(DOTS)] for _ in range(n_rows)]
    with write_loop(builder, WORD(0), m, WORD(1)) as vector_of_row:
        at = write.multiply_stride(vector_of_row, FLOAT_BYTES * lanes)
        factors = [
            write.load(x, builder.add(write.multiply_stride(x_row, i), at)) for i in range(n_rows)
        ]
        for d in range(DOTS):
            vector = write.load(w, builder.add(write.multiply_stride(w_row, d), at))
            for factor, own in zip(factors, sums, strict=True):
                write.add_product(own[d], factor, vector)
    for i, own in enumerate(sums):
        offset = write.multiply_stride(out_row, i)
        total = write.register(_sum_lanes(write, [builder.load(register) for register in own]))
        with builder.if_then(builder.icmp_signed("!=", adds, WORD(0))):
            before = write.load(out, offset, _DOTS)
            builder.store(write.add(before, builder.load(total)), total)
        write.store(builder.load(total), out, offset)
    builder.ret_void()


def _sum_lanes(write: _Writer, vectors: list[Any]) -> Any:
    """Return the sums over the lanes of four vectors, as one vector of four."""
    while (n := vectors[0].type.count) > DOTS:  # adds the upper half to the lower
        low, high = list(range(n // 2)), list(range(n // 2, n))
        vectors = [write.add(write.shuffle(v, v, low), write.shuffle(v, v, high)) for v in vectors]
    a, b, c, d = vectors
    first, second = [0, 4, 1, 5], [2, 6, 3, 7]
    ab = write.add(write.shuffle(a, b, first), write.shuffle(a, b, second))  # a b a b
    cd = write.add(write.shuffle(c, d, first), write.shuffle(c, d, second))
    return write.add(write.shuffle(ab, cd, [0, 1, 4, 5]), write.shuffle(ab, cd, [2, 3, 6, 7]))


def write_products(lanes: int = LANES) -> ir.Module:
    """Write all matmul kernels; NAMES has their names in the order of their table."""
    module = ir.Module()
    for n in range(1, MAX_ROWS + 1):
        write_sums_of_rows(module, f"rows_{n}", n, MAX_VECTORS, lanes, is_partial=False)
        for v in range(1, MAX_VECTORS + 1):
            name = f"rows_{n}_to_{v}"
            write_sums_of_rows(module, name, n, v, lanes, is_partial=COLUMNS == 1)
    for n in range(1, WIDE_ROWS + 1):
        write_sums_of_rows(module, f"rows_{n}_wide", n, 2 * MAX_VECTORS, lanes, is_partial=False)
    for n in range(1, MAX_ROWS_OF_DOTS + 1):
        write_sums_of_dots(module, f"dots_{n}", n, lanes)
    write_transpose(module)
    return module


WIDE_ROWS = 2
PARTIAL, WIDE = MAX_ROWS, MAX_ROWS * (1 + MAX_VECTORS)  # after kernels of whole blocks
BY_DOTS = WIDE + WIDE_ROWS
NAMES = (
    *(f"rows_{n}" for n in range(1, MAX_ROWS + 1)),
    *(f"rows_{n}_to_{v}" for v in range(1, MAX_VECTORS + 1) for n in range(1, MAX_ROWS + 1)),
    *(f"rows_{n}_wide" for n in range(1, WIDE_ROWS + 1)),
    *(f"dots_{n}" for n in range(1, MAX_ROWS_OF_DOTS + 1)),
    "transpose_square",
)


_TABLES: list[NDArray[np.int64]] = []  # never freed: engines store only their addresses


@functools.cache
def load_matmul_kernels() -> tuple[Loaded, NDArray[np.int64]]:
    """Load the machine code of all kernels.

    Returns:
        The object that owns the machine code, and the table of addresses.
    """
    key = repr((__name__, hash_modules((__name__,)), LANES))
    loaded = load_cached(key, lambda: str(write_products()))
    table = np.array([loaded.find_address(name) for name in NAMES], dtype=np.int64)
    _TABLES.append(table)
    return loaded, table
