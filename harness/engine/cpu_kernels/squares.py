"""Squares of a matrix transposed in registers: eight loads, 24 shuffles and eight stores.

A loop of single elements stores one a cycle: 512 x 768 take 135 us on one Zen 4 core, by squares
75; 256 x 256 take 22 and 11.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

SIDE = 8
_FLOAT_BYTES = 4
# How two rows become two that hold pairs, quadruples and then columns: places of both, one by one.
_PAIRS = ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15))
_QUADS = ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
_HALVES = ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))


def _transpose_square(_typing: Any, *_: Any) -> Any:
    """Transpose 8 x 8 float32 from one address to another; strides in elements."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        source, source_stride, out, out_stride = arguments
        rows = [_load(builder, _row(builder, source, source_stride, k)) for k in range(SIDE)]
        columns = _transposed(builder, rows)
        for k, column in enumerate(columns):
            pointer = _pointer(builder, _row(builder, out, out_stride, k))
            builder.store(column, pointer, align=_FLOAT_BYTES)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, types.intp), generate


def _row(builder: Any, address: Any, stride: Any, k: int) -> Any:
    integer = address.type
    n_bytes = builder.mul(stride, ir.Constant(integer, _FLOAT_BYTES * k))
    return builder.add(address, n_bytes)


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.VectorType(ir.FloatType(), SIDE).as_pointer())


def _load(builder: Any, address: Any) -> Any:
    return builder.load(_pointer(builder, address), align=_FLOAT_BYTES)


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    def mixed(a: Any, b: Any, places: tuple[tuple[int, ...], ...]) -> tuple[Any, ...]:
        lanes = ir.VectorType(ir.IntType(32), SIDE)
        masks = [ir.Constant(lanes, list(place)) for place in places]
        return tuple(builder.shuffle_vector(a, b, mask) for mask in masks)

    pairs = [mixed(rows[k], rows[k + 1], _PAIRS) for k in range(0, SIDE, 2)]
    low, high = (
        [q for i in (0, 1) for q in mixed(pairs[k][i], pairs[k + 1][i], _QUADS)] for k in (0, 2)
    )
    both = [mixed(a, b, _HALVES) for a, b in zip(low, high, strict=True)]
    return [first for first, _ in both] + [second for _, second in both]


transpose_square: Any = intrinsic(
    lambda typing, source, source_stride, out, out_stride: _transpose_square(typing)
)
