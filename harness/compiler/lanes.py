"""Vectors of sixteen small unsigned integers for compiled functions: SIMD lanes.

LLVM does not vectorize a loop that writes one row of an array and reads another: it has to assume
that they overlap. A value that is a vector from the start takes one instruction on a CPU with
registers of its size, and a few on any other.

Numbers have 8 or 16 bits, like those of their array. Sums saturate at the maximum, and differences
at 0.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from dynbatch.harness.compiler.kinds import INT, Array, Lanes, Value
from dynbatch.harness.compiler.registry import register_emitter
from dynbatch.harness.errors import CompileError

N_LANES = 16
MOST = 2**16 - 1
MAX_SHORT = 2**8 - 1
Rows = Annotated[NDArray[np.uint16], 2]  # (n, n_columns), where n_columns is a multiple of N_LANES
ShortRows = Annotated[NDArray[np.uint8], 2]
LANES, SHORT = Lanes(16), Lanes(8)


def load(rows: NDArray[Any], row: int, column: int) -> Any:
    """Return the lanes of a row from a column on, without checks."""
    return rows[row, column : column + N_LANES].copy()


def store(rows: NDArray[Any], row: int, column: int, lanes: Any) -> None:
    """Write lanes to a row from a column on, without checks."""
    rows[row, column : column + N_LANES] = lanes


def broadcast_number(rows: NDArray[Any], number: int) -> Any:
    """Return a number in each lane, with the width of an array's elements."""
    return np.full(N_LANES, number, rows.dtype)


def widen_lanes(lanes: Any) -> Any:
    """Return the same numbers with 16 bits."""
    return lanes.astype(np.uint16)


def take_maximum(lanes: Any, other: Any) -> Any:
    """Return the maximum of each lane."""
    return np.maximum(lanes, other)


def take_minimum(lanes: Any, other: Any) -> Any:
    """Return the minimum of each lane."""
    return np.minimum(lanes, other)


def add_saturated(lanes: Any, other: Any) -> Any:
    """Return the saturated sum of each lane."""
    most = np.iinfo(lanes.dtype).max
    return np.minimum(lanes.astype(np.int64) + other, most).astype(lanes.dtype)


def subtract_saturated(lanes: Any, other: Any) -> Any:
    """Return the difference of each lane, at least 0."""
    return np.maximum(lanes.astype(np.int64) - other, 0).astype(lanes.dtype)


def multiply_lanes(lanes: Any, other: Any) -> Any:
    """Return the product of each lane, which must not overflow."""
    return lanes * other


def shift_right(number: Any, times: Any) -> Any:
    """Return each number shifted right by the other lanes, by at most all bits except one."""
    return number >> np.minimum(times, np.iinfo(number.dtype).bits - 1).astype(number.dtype)


def _select_lanes(rows: Array) -> Lanes:
    return SHORT if rows.element.name == "uint8" else LANES


def _place(f: Any, rows: Array, row: Any, column: Any) -> Any:
    at = f.builder.mul(f.arithmetic.cast(row, INT).ir, rows.shape[1])
    first = f.builder.add(at, f.arithmetic.cast(column, INT).ir)
    return f.builder.bitcast(
        f.builder.gep(rows.pointer, [first]), _select_lanes(rows).ir.as_pointer()
    )


@register_emitter(load)
def _load(f: Any, rows: Array, row: Any, column: Any) -> Value:
    kind = _select_lanes(rows)
    return Value(kind, f.builder.load(_place(f, rows, row, column), align=kind.bits // 8))


@register_emitter(store)
def _store(f: Any, rows: Array, row: Any, column: Any, lanes: Value) -> None:
    align = _select_lanes(rows).bits // 8
    f.builder.store(lanes.ir, _place(f, rows, row, column), align=align)


@register_emitter(broadcast_number)
def _broadcast_number(f: Any, rows: Array, number: Any) -> Value:
    kind = _select_lanes(rows)
    if not isinstance(number, Value):
        return Value(kind, ir.Constant(kind.ir, [number] * kind.n))
    lane = f.builder.trunc(f.arithmetic.cast(number, INT).ir, ir.IntType(kind.bits))
    undefined, first = ir.Constant(kind.ir, ir.Undefined), ir.Constant(ir.IntType(32), 0)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), kind.n), [0] * kind.n)
    vector = f.builder.insert_element(undefined, lane, first)
    return Value(kind, f.builder.shuffle_vector(vector, undefined, mask))


@register_emitter(widen_lanes)
def _widen_lanes(f: Any, lanes: Value) -> Value:
    return lanes if lanes.kind == LANES else Value(LANES, f.builder.zext(lanes.ir, LANES.ir))


def _register_intrinsic(function: Any, name: str) -> None:
    @register_emitter(function)
    def emit(f: Any, lanes: Value, other: Value) -> Value:
        if lanes.kind != other.kind:
            raise CompileError("expected lanes of equal width")
        kind = lanes.kind
        named = f"llvm.{name}.v{kind.n}i{kind.bits}"
        operation = f.module.declare(named, kind.ir, kind.ir, kind.ir)
        return Value(kind, f.builder.call(operation, [lanes.ir, other.ir]))


for _function, _name in (
    (take_maximum, "umax"), (take_minimum, "umin"), (add_saturated, "uadd.sat"),
    (subtract_saturated, "usub.sat"),
):  # fmt: skip
    _register_intrinsic(_function, _name)


@register_emitter(multiply_lanes)
def _multiply_lanes(f: Any, lanes: Value, other: Value) -> Value:
    return Value(lanes.kind, f.builder.mul(lanes.ir, other.ir))


@register_emitter(shift_right)
def _shift_right(f: Any, number: Value, times: Value) -> Value:
    kind = number.kind
    most = ir.Constant(kind.ir, [kind.bits - 1] * kind.n)  # a larger shift is undefined
    is_less = f.builder.icmp_unsigned("<", times.ir, most)
    return Value(kind, f.builder.lshr(number.ir, f.builder.select(is_less, times.ir, most)))
