"""Memory access by address: one instruction each in compiled functions.

Functions that threads run get only integers, including addresses of arrays. In Python these
functions do the same by ctypes, so a kernel can run, slowly, without the compiler. Nothing is
checked: an address or an index outside of an array reads, or overwrites, other memory.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

WORD_BYTES, FLOAT_BYTES, HALF_WORD_BYTES = 8, 4, 4
ROOM_BYTES = 512
WORDS_OF_ARRAY = 4
# Result of a function that is called by its address and has raised an error.
FAILED = -(2**63)
T = TypeVar("T")
Pointer = Any  # to elements of one type; indexed from 0, like an array


def get_address(array: NDArray[Any]) -> int:
    """Return the address of an array's elements."""
    address: int = array.__array_interface__["data"][0]
    return address


def read_word(address: int, k: int) -> int:
    """Return the k-th int64 at an address."""
    return ctypes.c_int64.from_address(address + WORD_BYTES * k).value


def put_word(address: int, k: int, value: int) -> None:
    """Write the k-th int64 at an address."""
    ctypes.c_int64.from_address(address + WORD_BYTES * k).value = value


def add_to_word(address: int, k: int, value: int) -> None:
    """Add to the k-th int64 at an address."""
    put_word(address, k, read_word(address, k) + value)


def read_half_word(address: int, k: int) -> int:
    """Return the k-th int32 at an address."""
    return ctypes.c_int32.from_address(address + HALF_WORD_BYTES * k).value


def _make_pointer_cast(kind: Any) -> Callable[[int], Pointer]:
    return lambda address: ctypes.cast(address, ctypes.POINTER(kind))


# Each of these returns a pointer to the elements at an address.
floats_at, doubles_at = _make_pointer_cast(ctypes.c_float), _make_pointer_cast(ctypes.c_double)


def view_array(address: int, shape: tuple[int, ...] | int, dtype: Any) -> NDArray[Any]:
    """Return an array over the memory at an address."""
    sizes = shape if isinstance(shape, tuple) else (shape,)
    n_bytes = int(np.prod(sizes)) * np.dtype(dtype).itemsize
    memory = (ctypes.c_char * n_bytes).from_address(address) if n_bytes else b""
    return np.frombuffer(memory, dtype).reshape(sizes)


def view_arrays(address: int, kind: type[T]) -> T:
    """Return the arrays of a table as a NamedTuple, without the cost of Python arguments.

    A call with forty arrays takes Python 40 us. A call with a table's address takes 1 us, and
    compiled code can make it, too. For each array the table has WORDS_OF_ARRAY int64: its address,
    followed by its sizes.
    """
    raise NotImplementedError("only compiled code can find arrays in a table")


def copy_bytes(out: int, source: int, n: int) -> None:
    """Copy n bytes from one address to another; the two ranges must not overlap.

    It is the C library's memcpy, for rows of 2 kB three times as fast as a loop (the lookups of 64
    lattices of LatticeLSTM, hidden 128: 0.7 against 2.2 ms on one Zen 4 core).
    """
    ctypes.memmove(out, source, n)


def call(address: int, arguments: tuple[Any, ...]) -> None:
    """Call the C function without result at an address.

    Arguments are passed with their types: int64, np.int32, np.float32.
    """
    kinds = [_KINDS.get(type(argument).__name__, ctypes.c_int64) for argument in arguments]
    ctypes.CFUNCTYPE(None, *kinds)(address)(*arguments)


def call_for_number(address: int, arguments: tuple[int, ...]) -> int:
    """Call the C function of int64 at an address; return its int64, or FAILED."""
    kinds = [ctypes.c_int64] * len(arguments)
    result: int = ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(address)(*arguments)
    return result


_KINDS: dict[str, Any] = {"int32": ctypes.c_int32, "float32": ctypes.c_float}


def call_system_library(name: str, arguments: tuple[int, ...]) -> int:
    """Call a function of int64 in the C library by name; return its int64."""
    function = getattr(ctypes.CDLL(None), name)
    function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_int64] * len(arguments)
    return int(function(*arguments))


def load_atomic(address: int) -> int:
    """Return the int64 at an address, in one order for all threads."""
    return read_word(address, 0)


def store_atomic(address: int, value: int) -> None:
    """Write the int64 at an address, in one order for all threads."""
    put_word(address, 0, value)


def add_atomic(address: int, value: int) -> int:
    """Add to the int64 at an address, in one order for all threads; return its old value."""
    before = read_word(address, 0)
    put_word(address, 0, before + value)
    return before


def pause() -> None:
    """Signal to the CPU that this thread spins, which benefits another thread of its core."""


def count_cycles() -> int:
    """Return the CPU's cycle counter, at a constant rate; for fractions of a run, not times."""
    return time.perf_counter_ns()


def call_system(number: int, a: int, b: int, c: int, d: int) -> None:
    """Make a system call with four arguments; in Python do nothing."""


def allocate_on_stack() -> int:
    """Return the address of ROOM_BYTES of memory, valid until the kernel returns.

    Threads must not allocate memory: a tracer of allocations such as tracemalloc would wait for
    Python's lock, which the caller of the threads holds.
    """
    room = ctypes.create_string_buffer(ROOM_BYTES)
    _ROOMS.append(room)
    return ctypes.addressof(room)


_ROOMS: list[Any] = []
