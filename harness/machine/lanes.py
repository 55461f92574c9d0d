"""Sixteen small whole numbers side by side, for compiled code: what a CPU's vectors are for.

A loop over a row of numbers is no vector instruction to LLVM where one row of an array is written
and another one read: it has to take them to overlap. A value that is a vector from the start is
one instruction on a CPU that has registers of its size, and a few on any other.

Numbers are of 8 or 16 bits without a sign, as those of the array that they come from: sums stop at
the highest one, and differences at 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils as untyped_cgutils
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, models, register_model
from numpy.typing import NDArray

N_LANES = 16
MOST = 2**16 - 1
MOST_SHORT = 2**8 - 1
Rows = NDArray[np.uint16]  # (n, n_columns), columns a multiple of N_LANES
ShortRows = NDArray[np.uint8]

cgutils: Any = untyped_cgutils


class LanesType(types.Type):
    """What compiled code takes such a value for."""

    def __init__(self, bits: int) -> None:
        super().__init__(name=f"{N_LANES} lanes of uint{bits}")
        self.lane = ir.IntType(bits)
        self.vector = ir.VectorType(self.lane, N_LANES)


@register_model(LanesType)
class _Model(models.PrimitiveModel):
    """How LLVM keeps it."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.vector)  # type: ignore[no-untyped-call]


LANES = LanesType(16)
SHORT = LanesType(8)


def _lanes_of(rows: Any) -> LanesType:
    """What a row of an array is loaded as."""
    return SHORT if rows.dtype == types.uint8 else LANES


def _load(_typing: Any, rows: Any, row: Any, column: Any) -> Any:
    """Return the lanes of a row from a column on; nothing is checked."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = _place(context, builder, signature, values)
        return builder.load(place, align=_lanes_of(rows).lane.width // 8)

    return _lanes_of(rows)(rows, row, column), generate


def _store(_typing: Any, rows: Any, row: Any, column: Any, lanes: Any) -> Any:
    """Write lanes to a row from a column on; nothing is checked."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = _place(context, builder, signature, values)
        builder.store(values[3], place, align=_lanes_of(rows).lane.width // 8)
        return context.get_dummy_value()

    return types.void(rows, row, column, _lanes_of(rows)), generate


def _place(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """The address of a column of a row."""
    array = context.make_array(signature.args[0])(context, builder, values[0])
    _, n_columns = cgutils.unpack_tuple(builder, array.shape, 2)
    row, column = (
        context.cast(builder, value, kind, types.intp)
        for value, kind in zip(values[1:3], signature.args[1:3], strict=True)
    )
    first = builder.add(builder.mul(row, n_columns), column)
    vector = _lanes_of(signature.args[0]).vector
    return builder.bitcast(builder.gep(array.data, [first]), vector.as_pointer())


def _every(_typing: Any, rows: Any, number: Any) -> Any:
    """Return a number in each lane, as wide as those of an array."""
    kind = _lanes_of(rows)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lane = context.cast(builder, values[1], signature.args[1], rows.dtype)
        vector = ir.Constant(kind.vector, ir.Undefined)
        for place in range(N_LANES):
            vector = builder.insert_element(vector, lane, ir.Constant(ir.IntType(32), place))
        return vector

    return kind(rows, number), generate


def _wide(_typing: Any, lanes: Any) -> Any:
    """Return the same numbers of 16 bits."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.zext(values[0], LANES.vector) if lanes == SHORT else values[0]

    return LANES(lanes), generate


def _lane_by_lane(name: str) -> Any:
    """An operation of LLVM on two vectors."""

    def operation(_typing: Any, one: Any, other: Any) -> Any:
        if one != other:
            raise TypingError(f"lanes of one width are needed, not {one} and {other}")

        def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            kind = ir.FunctionType(one.vector, [one.vector, one.vector])
            named = f"llvm.{name}.v{N_LANES}i{one.lane.width}"
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, named), values)

        return one(one, other), generate

    return intrinsic(operation)


def _times(_typing: Any, one: Any, other: Any) -> Any:
    """Return the product of each lane, which must be at most the highest number."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.mul(*values)

    return one(one, other), generate


def _halved(_typing: Any, number: Any, times: Any) -> Any:
    """Return each number halved as often as the other lanes say, but never by all bits."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        most = ir.Constant(
            number.vector, [ir.Constant(number.lane, number.lane.width - 1)] * N_LANES
        )
        one, times = values  # what a shift by all bits, or more, gives depends on the CPU
        at_most = builder.select(builder.icmp_unsigned("<", times, most), times, most)
        return builder.lshr(one, at_most)

    return number(number, times), generate


# As values, since a checker of types takes an intrinsic for a function of its first argument, too.
load: Any = intrinsic(_load)
store: Any = intrinsic(_store)
every: Any = intrinsic(_every)
wide: Any = intrinsic(_wide)
higher: Any = _lane_by_lane("umax")
lower: Any = _lane_by_lane("umin")
plus: Any = _lane_by_lane("uadd.sat")
minus: Any = _lane_by_lane("usub.sat")
times: Any = intrinsic(_times)
halved: Any = intrinsic(_halved)
