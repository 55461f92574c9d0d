"""Arrays in compiled code from tables of addresses: no argument costs Python anything.

A call with forty arrays takes Python 40 us; a call with a table's address 1 us, and threads of our
own can make it, too. A table holds two int64 an array: its address and its number of rows.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from harness.machine.compiled import compiled_with

Table = NDArray[np.int64]
# Words of what a thread is told (context): its number, of how many, their team, what it multiplies
# with, what it counts, and two words for its error.
THREAD, N_THREADS, TEAM, SIZES, LETTERS, FACTORS, TALLY, ERROR = range(8)
N_WORDS = 10
N_TALLY = 3
_WORD_BYTES, _HALF_WORD_BYTES = 8, 4
N_SIZES, N_LETTERS, N_FACTORS = 12, 2, 2
carray: Any = numba.carray  # type: ignore[attr-defined]
INLINE: dict[str, Any] = {"constants": False, "error_model": "numpy"}


def _pointer(kind: Any) -> Any:
    """An intrinsic that makes a pointer to elements of a type of an address."""

    def make(_typing: Any, address: Any) -> Any:
        found = types.CPointer(kind)  # type: ignore[no-untyped-call]

        def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(found))

        return found(types.intp), generate

    return intrinsic(make)


float32s, _int64s = _pointer(types.float32), _pointer(types.int64)
_int32s, _bools = map(_pointer, (types.int32, types.boolean))
uint16s: Any = _pointer(types.uint16)
_float64s: Any = _pointer(types.float64)


@compiled_with(**INLINE)
def word(address: int, k: int) -> Any:  # pragma: no cover - compiled
    """The k-th int64 at an address."""
    return carray(_int64s(address), (k + 1,))[k]


@compiled_with(**INLINE)
def float_matrix(places: int, k: int, width: int) -> Any:  # pragma: no cover - compiled
    """Array k of a table: float32, rows of a width."""
    return carray(float32s(word(places, 2 * k)), (word(places, 2 * k + 1), width))


@compiled_with(**INLINE)
def float_vector(places: int, k: int) -> Any:  # pragma: no cover - compiled
    """Array k of a table: float32."""
    return carray(float32s(word(places, 2 * k)), (word(places, 2 * k + 1),))


@compiled_with(**INLINE)
def int64_vector(places: int, k: int) -> Any:  # pragma: no cover - compiled
    """Array k of a table: int64."""
    return carray(_int64s(word(places, 2 * k)), (word(places, 2 * k + 1),))


@compiled_with(**INLINE)
def int32_vector(places: int, k: int) -> Any:  # pragma: no cover - compiled
    """Array k of a table: int32."""
    return carray(_int32s(word(places, 2 * k)), (word(places, 2 * k + 1),))


@compiled_with(**INLINE)
def int32_part(places: int, k: int, begin: int, end: int) -> Any:  # pragma: no cover - compiled
    """Some elements of array k of a table: int32."""
    return carray(_int32s(word(places, 2 * k) + _HALF_WORD_BYTES * begin), (end - begin,))


@compiled_with(**INLINE)
def int32_matrix(places: int, k: int, width: int) -> Any:  # pragma: no cover - compiled
    """Array k of a table, which holds its elements row by row: int32, rows of a width."""
    return carray(_int32s(word(places, 2 * k)), (word(places, 2 * k + 1) // max(width, 1), width))


@compiled_with(**INLINE)
def int64_matrix(places: int, k: int, width: int) -> Any:  # pragma: no cover - compiled
    """The same of int64."""
    return carray(_int64s(word(places, 2 * k)), (word(places, 2 * k + 1) // width, width))


@compiled_with(**INLINE)
def flags(places: int, k: int, shape: Any) -> Any:  # pragma: no cover - compiled
    """Array k of a table in a shape: bool."""
    return carray(_bools(word(places, 2 * k)), shape)


@compiled_with(**INLINE)
def int32_pairs(address: int, n: int) -> Any:  # pragma: no cover - compiled
    """int32 (n, 2) at an address."""
    return carray(_int32s(address), (n, 2))


@compiled_with(**INLINE)
def floats(address: int, n: int) -> Any:  # pragma: no cover - compiled
    """float32 (n,) at an address."""
    return carray(float32s(address), (n,))


@compiled_with(**INLINE)
def doubles(address: int, n: int) -> Any:  # pragma: no cover - compiled
    """float64 (n,) at an address."""
    return carray(_float64s(address), (n,))


@compiled_with(**INLINE)
def thread_of(context: int) -> Any:  # pragma: no cover - compiled
    """Which thread this is, and of how many."""
    return word(context, THREAD), word(context, N_THREADS)


@compiled_with(**INLINE)
def tally_of(context: int) -> Any:  # pragma: no cover - compiled
    """What this thread counts."""
    return carray(_int64s(word(context, TALLY)), (N_TALLY,))


def address_of(array: NDArray[Any]) -> int:
    """Where the elements of an array begin."""
    found: int = array.__array_interface__["data"][0]
    return found


@compiled_with(**INLINE)
def put_place(places: Any, k: int, array: Any) -> None:  # pragma: no cover - compiled
    """Write where an array is, and how many rows it has (n, 2); faster than Python tells it."""
    places[k, 0], places[k, 1] = array.ctypes.data, array.shape[0]


@compiled_with(**INLINE)
def put_parts(places: Any, numbers: Any, array: Any, bounds: Any) -> None:  # pragma: no cover
    """Write where parts of an array of int64 are: numbers (n, 2) say which place, and which part.

    bounds (n_parts, 2): where each part begins, and how long it is.
    """
    begin = array.ctypes.data
    for k in range(len(numbers)):
        place, part = numbers[k, 0], numbers[k, 1]
        places[place, 0] = begin + _WORD_BYTES * bounds[part, 0]
        places[place, 1] = bounds[part, 1]


def line_for(k: int, array: NDArray[Any]) -> str:
    """The text that makes array k of the table `places` the variable a<k> of generated code.

    Raises TypeError for an array that compiled code would take for another one.
    """
    if not array.flags.c_contiguous:
        raise TypeError(f"array {k} of {array.shape} is not C-contiguous")
    if array.dtype == np.float32 and array.ndim == 2:
        return f"a{k} = float_matrix(places, {k}, {array.shape[1]})"
    if array.dtype == np.uint16 and array.ndim == 2:
        return f"a{k} = half_matrix(places, {k}, {array.shape[1]})"
    kinds = {np.float32: "float", np.int64: "int64", np.int32: "int32"}
    kind = kinds.get(array.dtype.type)
    if kind is None or array.ndim != 1:
        raise TypeError(f"array {k} is {array.dtype} in {array.ndim} dimensions")
    return f"a{k} = {kind}_vector(places, {k})"
