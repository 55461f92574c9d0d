"""Register kernels of matrix products: a few rows by a few vectors of columns.

Compilers keep the sums of such loops in memory; these kernels are written with explicit vectors.
The order of each sum depends only on the kind of kernel (rows or dots) and on the number of lanes,
so any subset of the rows gives the same bits. Libraries promise no such thing: where the number of
rows hands a product to one, it agrees with these kernels within rounding.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from harness.compiler.object_code import Loaded, host_target, load_kept
from harness.compiler.source_stamp import stamp_of
from harness.engine.cpu_kernels.code import FLOAT, FLOAT_BYTES, INT32, WORD, begin_function, loop
from harness.engine.cpu_kernels.squares import write_transpose

_FAST = ("contract", "nsz")  # a product and a sum are one instruction


def _choose_lanes() -> int:
    """Return the floats per vector: 16 with AVX-512, else 8 (AVX2, or two NEON registers)."""
    return 16 if "+avx512f" in host_target().features else 8


# AVX-512 has 32 registers: 24 sums, 4 vectors of a matrix and an element fill them. With 8 lanes
# they are 16, for 12 sums.
LANES = _choose_lanes()
MOST_ROWS, MOST_VECTORS = 6, LANES // 4
DOTS, MOST_ROWS_OF_DOTS = 4, 5 if LANES == 16 else 2  # sums of dots: rows of the matrix, and of x
_DOTS = ir.VectorType(FLOAT, DOTS)
VECTOR_BYTES = FLOAT_BYTES * LANES


class _Writer:
    """Write the instructions of one kernel; places are byte offsets from an address."""

    def __init__(self, builder: ir.IRBuilder, lanes: int) -> None:
        self.builder = builder
        self.lanes, self.vector = lanes, ir.VectorType(FLOAT, lanes)

    def number(self, value: int) -> Any:
        return WORD(value)

    def times(self, stride: Any, k: int) -> Any:
        return self.builder.mul(stride, self.number(k))

    def _pointer(self, address: Any, place: Any, kind: Any) -> Any:
        return self.builder.inttoptr(self.builder.add(address, place), kind.as_pointer())

    def load(self, address: Any, place: Any, kind: Any = None) -> Any:
        pointer = self._pointer(address, place, kind or self.vector)
        return self.builder.load(pointer, align=FLOAT_BYTES)

    def store(self, value: Any, address: Any, place: Any) -> None:
        self.builder.store(value, self._pointer(address, place, value.type), align=FLOAT_BYTES)

    def spread(self, number: Any) -> Any:
        """Return a vector with a number in every lane."""
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(undefined, number, ir.Constant(INT32, 0))
        return self.shuffled(first, first, [0] * self.lanes)

    def shuffled(self, a: Any, b: Any, lanes: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(INT32, len(lanes)), lanes)
        return self.builder.shuffle_vector(a, b, mask)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=_FAST)

    def add_product(self, sums: Any, a: Any, b: Any) -> None:
        """Add to sums that are kept in a register."""
        product = self.builder.fmul(a, b, flags=_FAST)
        self.builder.store(self.add(self.builder.load(sums), product), sums)

    def register(self, value: Any) -> Any:
        """Allocate a variable, which LLVM keeps in a register."""
        place = self.builder.alloca(value.type)
        self.builder.store(value, place)
        return place

    def zeros(self) -> Any:
        """Allocate a vector that starts at zero."""
        return self.register(ir.Constant(self.vector, [0.0] * self.lanes))


def write_sums_of_rows(
    module: ir.Module, name: str, n_rows: int, n_vectors: int, lanes: int
) -> None:
    """Write the kernel of out = x w, or out += x w, for n_rows rows of x.

    It computes n_vectors vectors of columns of w, summed over the k rows of w. Its arguments: the
    address of x, bytes between its rows and between its elements; the address of w and bytes
    between its rows; the same of out; k; 0 to overwrite out, 1 to add to it.

    Args:
        module: to be added to.
        name: of the function.
        n_rows: rows of x per call.
        n_vectors: vectors of columns per call.
        lanes: floats per vector, DOTS times a power of two. Any CPU runs any number; LLVM splits
            vectors that are wider than its registers.
    """
    builder, arguments = begin_function(module, name, 9)
    x, x_row, x_next, w, w_row, out, out_row, k, adds = arguments
    write = _Writer(builder, lanes)
    columns = [write.number(FLOAT_BYTES * lanes * j) for j in range(n_vectors)]
    places = [builder.add(write.times(out_row, i), c) for i in range(n_rows) for c in columns]
    sums = [write.zeros() for _ in places]
    with builder.if_then(builder.icmp_signed("!=", adds, write.number(0))):
        for place, own in zip(places, sums, strict=True):
            builder.store(write.load(out, place), own)
    with loop(builder, WORD(0), k, WORD(1)) as i_of_k:
        row, element = builder.mul(w_row, i_of_k), builder.mul(x_next, i_of_k)
        vectors = [write.load(w, builder.add(row, column)) for column in columns]
        for i in range(n_rows):
            place = builder.add(write.times(x_row, i), element)
            factor = write.spread(write.load(x, place, FLOAT))
            for j, vector in enumerate(vectors):
                write.add_product(sums[i * n_vectors + j], factor, vector)
    for place, own in zip(places, sums, strict=True):
        write.store(builder.load(own), out, place)
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
    sums = [[write.zeros() for _ in range(DOTS)] for _ in range(n_rows)]
    with loop(builder, WORD(0), m, WORD(1)) as vector_of_row:
        at = write.times(vector_of_row, FLOAT_BYTES * lanes)
        factors = [write.load(x, builder.add(write.times(x_row, i), at)) for i in range(n_rows)]
        for d in range(DOTS):
            vector = write.load(w, builder.add(write.times(w_row, d), at))
            for factor, own in zip(factors, sums, strict=True):
                write.add_product(own[d], factor, vector)
    for i, own in enumerate(sums):
        place = write.times(out_row, i)
        found = write.register(_sum_lanes(write, [builder.load(one) for one in own]))
        with builder.if_then(builder.icmp_signed("!=", adds, write.number(0))):
            before = write.load(out, place, _DOTS)
            builder.store(write.add(before, builder.load(found)), found)
        write.store(builder.load(found), out, place)
    builder.ret_void()


def _sum_lanes(write: _Writer, vectors: list[Any]) -> Any:
    """Return the sum over lanes of each of four vectors, as one vector of four."""
    while (n := vectors[0].type.count) > DOTS:  # halves on each other
        low, high = list(range(n // 2)), list(range(n // 2, n))
        vectors = [
            write.add(write.shuffled(v, v, low), write.shuffled(v, v, high)) for v in vectors
        ]
    a, b, c, d = vectors
    first, second = [0, 4, 1, 5], [2, 6, 3, 7]
    ab = write.add(write.shuffled(a, b, first), write.shuffled(a, b, second))  # a b a b
    cd = write.add(write.shuffled(c, d, first), write.shuffled(c, d, second))
    return write.add(write.shuffled(ab, cd, [0, 1, 4, 5]), write.shuffled(ab, cd, [2, 3, 6, 7]))


def write_products(lanes: int = LANES) -> ir.Module:
    """Write all kernels of products; NAMES has their names in the order of a table of them."""
    module = ir.Module()
    for n in range(1, MOST_ROWS + 1):
        write_sums_of_rows(module, f"rows_{n}", n, MOST_VECTORS, lanes)
        write_sums_of_rows(module, f"rows_{n}_by_vector", n, 1, lanes)
    for n in range(1, WIDE_ROWS + 1):
        write_sums_of_rows(module, f"rows_{n}_wide", n, 2 * MOST_VECTORS, lanes)
    for n in range(1, MOST_ROWS_OF_DOTS + 1):
        write_sums_of_dots(module, f"dots_{n}", n, lanes)
    write_transpose(module, "transpose_square")
    return module


WIDE_ROWS = 2
BY_VECTORS, BY_VECTOR, WIDE, BY_DOTS = 0, MOST_ROWS, 2 * MOST_ROWS, 2 * MOST_ROWS + WIDE_ROWS
NAMES = (
    *(f"rows_{n}" for n in range(1, MOST_ROWS + 1)),
    *(f"rows_{n}_by_vector" for n in range(1, MOST_ROWS + 1)),
    *(f"rows_{n}_wide" for n in range(1, WIDE_ROWS + 1)),
    *(f"dots_{n}" for n in range(1, MOST_ROWS_OF_DOTS + 1)),
    "transpose_square",
)


@functools.cache
def load_products() -> tuple[Loaded, NDArray[np.int64]]:
    """Load their machine code; returns what holds it, and the table of addresses."""
    words = repr((__name__, stamp_of((__name__,)), LANES))
    loaded = load_kept(words, lambda: str(write_products()))
    return loaded, np.array([loaded.address(name) for name in NAMES], dtype=np.int64)
