"""Pieces of matrix products that stay in registers: sums of a few rows by a few vectors of columns.

What a compiler makes of such loops keeps its sums in memory; these are written with vectors. A sum
has the same order whatever rows are taken together, so that these pieces give the same bits for
any share of the rows; where a library multiplies what has many rows, another share may not.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils as untyped_cgutils
from numba.core import types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

cgutils: Any = untyped_cgutils
_FLOAT_BYTES = 4
_FLOAT, _LANE = ir.FloatType(), ir.IntType(32)
_FAST = ("contract", "nsz")  # a product and a sum are one instruction


def _lanes() -> int:
    """Floats of a vector of the CPU that numba compiles for, or of two of its half-sized ones."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return 16 if "+avx512f" in features else 8


# AVX-512 has 32 registers: 24 sums, 4 vectors of a matrix and an element fill them. With 8 lanes
# they are 16, for 12 sums.
LANES = _lanes()
MOST_ROWS, MOST_VECTORS = 6, LANES // 4
DOTS, MOST_ROWS_OF_DOTS = 4, 5 if LANES == 16 else 2  # sums of dots: rows of the matrix, and of x
_VECTOR, _DOTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_FLOAT, DOTS)
VECTOR_BYTES = _FLOAT_BYTES * LANES


class _Writer:
    """Writes the instructions of one piece; places are bytes behind an address."""

    def __init__(self, builder: Any, integer: Any) -> None:
        self.builder, self._integer = builder, integer

    def number(self, value: int) -> Any:
        return ir.Constant(self._integer, value)

    def times(self, stride: Any, k: int) -> Any:
        return self.builder.mul(stride, self.number(k))

    def _pointer(self, address: Any, place: Any, kind: Any) -> Any:
        return self.builder.inttoptr(self.builder.add(address, place), kind.as_pointer())

    def load(self, address: Any, place: Any, kind: Any = _VECTOR) -> Any:
        return self.builder.load(self._pointer(address, place, kind), align=_FLOAT_BYTES)

    def store(self, value: Any, address: Any, place: Any) -> None:
        self.builder.store(value, self._pointer(address, place, value.type), align=_FLOAT_BYTES)

    def spread(self, number: Any) -> Any:
        """A number in every lane."""
        first = self.builder.insert_element(_undefined(_VECTOR), number, ir.Constant(_LANE, 0))
        return self.shuffled(first, first, [0] * LANES)

    def shuffled(self, a: Any, b: Any, lanes: list[int]) -> Any:
        mask = ir.Constant(ir.VectorType(_LANE, len(lanes)), lanes)
        return self.builder.shuffle_vector(a, b, mask)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=_FAST)

    def add_product(self, sums: Any, a: Any, b: Any) -> None:
        """Add to sums that are kept in a register."""
        product = self.builder.fmul(a, b, flags=_FAST)
        self.builder.store(self.add(self.builder.load(sums), product), sums)

    def register(self, value: Any) -> Any:
        """A place of a value that changes."""
        return cgutils.alloca_once_value(self.builder, value)


def _undefined(kind: Any) -> Any:
    return ir.Constant(kind, ir.Undefined)


def _zeros(kind: Any) -> Any:
    return ir.Constant(kind, [0.0] * kind.count)


def _sums_of_rows(n_rows: int, n_vectors: int) -> Any:
    """out = x w, or out += it: n_rows of x by n_vectors of columns of w, over k rows of w.

    Arguments: address of x, bytes from one row to the next and from one element to the next;
    address of w and bytes between rows; the same of out; k; 0 where nothing is added to.
    """

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        x, x_row, x_next, w, w_row, out, out_row, k, adds = arguments
        write = _Writer(builder, x.type)
        columns = [write.number(VECTOR_BYTES * j) for j in range(n_vectors)]
        places = [builder.add(write.times(out_row, i), c) for i in range(n_rows) for c in columns]
        sums = [write.register(_zeros(_VECTOR)) for _ in places]
        with builder.if_then(builder.icmp_signed("!=", adds, write.number(0))):
            for place, own in zip(places, sums, strict=True):
                builder.store(write.load(out, place), own)
        with cgutils.for_range(builder, k, intp=x.type) as loop:
            row, element = builder.mul(w_row, loop.index), builder.mul(x_next, loop.index)
            vectors = [write.load(w, builder.add(row, column)) for column in columns]
            for i in range(n_rows):
                place = builder.add(write.times(x_row, i), element)
                factor = write.spread(write.load(x, place, _FLOAT))
                for j, vector in enumerate(vectors):
                    write.add_product(sums[i * n_vectors + j], factor, vector)
        for place, own in zip(places, sums, strict=True):
            write.store(builder.load(own), out, place)
        return context.get_dummy_value()

    signature = types.void(*[types.intp] * 9)
    return intrinsic(
        lambda _typing, x, x_row, x_next, w, w_row, out, out_row, k, adds: (signature, generate)
    )


def _sums_of_dots(n_rows: int) -> Any:
    """out = x w^T, or out += it: n_rows of x by DOTS rows of w, which are m vectors long.

    Arguments: addresses of x, w and out, behind each the bytes between rows; m; 0 where nothing
    is added to.
    """

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        x, x_row, w, w_row, out, out_row, m, adds = arguments
        write = _Writer(builder, x.type)
        sums = [[write.register(_zeros(_VECTOR)) for _ in range(DOTS)] for _ in range(n_rows)]
        with cgutils.for_range(builder, m, intp=x.type) as loop:
            at = write.times(loop.index, VECTOR_BYTES)
            factors = [write.load(x, builder.add(write.times(x_row, i), at)) for i in range(n_rows)]
            for d in range(DOTS):
                vector = write.load(w, builder.add(write.times(w_row, d), at))
                for factor, own in zip(factors, sums, strict=True):
                    write.add_product(own[d], factor, vector)
        for i, own in enumerate(sums):
            place = write.times(out_row, i)
            found = write.register(_each_summed(write, [builder.load(one) for one in own]))
            with builder.if_then(builder.icmp_signed("!=", adds, write.number(0))):
                before = write.load(out, place, _DOTS)
                builder.store(write.add(before, builder.load(found)), found)
            write.store(builder.load(found), out, place)
        return context.get_dummy_value()

    signature = types.void(*[types.intp] * 8)
    return intrinsic(
        lambda _typing, x, x_row, w, w_row, out, out_row, m, adds: (signature, generate)
    )


def _each_summed(write: _Writer, vectors: list[Any]) -> Any:
    """The sum over lanes of each of four vectors, as one vector of four."""
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


ROWS_BY_VECTORS = [_sums_of_rows(n, MOST_VECTORS) for n in range(1, MOST_ROWS + 1)]
ROWS_BY_MORE_VECTORS = [_sums_of_rows(n, 2 * MOST_VECTORS) for n in (1, 2)]
ROWS_BY_VECTOR = [_sums_of_rows(n, 1) for n in range(1, MOST_ROWS + 1)]
ROWS_BY_DOTS = [_sums_of_dots(n) for n in range(1, MOST_ROWS_OF_DOTS + 1)]
