"""What generated code finds its arrays with: as addresses.py does, but bare (machine/bare.py)."""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic

from harness.engine.cpu_kernels.addresses import (
    FACTORS,
    LETTERS,
    N_FACTORS,
    N_LETTERS,
    N_SIZES,
    N_TALLY,
    SIZES,
    TALLY,
)
from harness.machine.bare import Bare, packed

_WORDS_OF_A_PLACE = 2  # an address, and a number of rows


def _word(builder: Any, address: Any, at: Any) -> Any:
    """The int64 so many words behind an address."""
    words = builder.inttoptr(address, address.type.as_pointer())
    return builder.load(builder.gep(words, [at]))


def _found(context: Any, builder: Any, kind: Bare, address: Any, shape: list[Any]) -> Any:
    data = builder.inttoptr(address, context.get_value_type(types.CPointer(kind.array.dtype)))  # type: ignore[no-untyped-call]
    return packed(context, builder, kind, data, shape)


def _in_table(context: Any, builder: Any, kind: Bare, values: Any) -> Any:
    places, k, *width = values
    first = builder.mul(k, k.type(_WORDS_OF_A_PLACE))
    n = _word(builder, places, builder.add(first, k.type(1)))
    return _found(context, builder, kind, _word(builder, places, first), [n, *width])


def _vector(dtype: Any) -> Any:
    """Array k of a table."""
    kind = Bare(dtype, 1)

    def find(_typing: Any, _places: Any, _k: Any) -> Any:
        def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
            return _in_table(context, builder, kind, values)

        return kind(types.intp, types.intp), generate

    return intrinsic(find)


def _matrix(dtype: Any) -> Any:
    """Array k of a table: rows of a width."""
    kind = Bare(dtype, 2)

    def find(_typing: Any, _places: Any, _k: Any, _width: Any) -> Any:
        def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
            return _in_table(context, builder, kind, values)

        return kind(types.intp, types.intp, types.intp), generate

    return intrinsic(find)


def _of_thread(dtype: Any, at: int, n: int) -> Any:
    """An array that a thread is told of."""
    kind = Bare(dtype, 1)

    def find(_typing: Any, _context: Any) -> Any:
        def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
            (told,) = values
            address = _word(builder, told, told.type(at))
            return _found(context, builder, kind, address, [told.type(n)])

        return kind(types.intp), generate

    return intrinsic(find)


float_matrix, half_matrix = _matrix(types.float32), _matrix(types.uint16)
float_vector, int32_vector, int64_vector = map(_vector, (types.float32, types.int32, types.int64))
# What the thread multiplies with (blas.Scratch), and what it counts.
sizes_of = _of_thread(types.int64, SIZES, N_SIZES)
letters_of = _of_thread(types.uint8, LETTERS, N_LETTERS)
factors_of = _of_thread(types.float32, FACTORS, N_FACTORS)
tally_of = _of_thread(types.int64, TALLY, N_TALLY)
