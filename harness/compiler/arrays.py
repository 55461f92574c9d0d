"""Array functions of the compiler's runtime, and the memory of new arrays.

New arrays are allocated consecutively in a chunk, and freed when the function that Python called
has returned. The chunk is reused, so later calls of the same size allocate nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynbatch.harness.compiler.pointers import call_system_library, put_word, read_word
from dynbatch.harness.compiler.registry import helper

CHUNK, USED, SIZE = range(3)
N_ARENA = 3
_ALIGNED, _LINK, _FEWEST, _MOST = 64, 64, 2**16, 2**47


@helper(apart=True)
def allocate(arena: int, n_bytes: int) -> int:
    """Return the address of new memory; raise MemoryError if there is none."""
    used, size = read_word(arena, USED), read_word(arena, SIZE)
    if n_bytes < 0 or n_bytes > size - used:
        _grow(arena, n_bytes)
        used = read_word(arena, USED)
    put_word(arena, USED, used + (n_bytes + _ALIGNED - 1) // _ALIGNED * _ALIGNED)
    return read_word(arena, CHUNK) + used


@helper
def _grow(arena: int, n_bytes: int) -> None:
    """Allocate a chunk of twice the size; its first word is the previous chunk's address."""
    size = max(2 * read_word(arena, SIZE), n_bytes + 2 * _LINK, _FEWEST)
    chunk = 0
    if 0 <= n_bytes < _MOST:
        chunk = call_system_library("aligned_alloc", (_ALIGNED, (size + 63) // 64 * 64))
    if chunk == 0:
        raise MemoryError("out of memory for an array of a compiled function")
    put_word(chunk, 0, read_word(arena, CHUNK))
    put_word(arena, CHUNK, chunk)
    put_word(arena, SIZE, size)
    put_word(arena, USED, _LINK)


@helper(apart=True)
def release(arena: int) -> None:
    """Free all memory except the newest chunk, which is the largest."""
    chunk = read_word(arena, CHUNK)
    if chunk != 0:
        older = read_word(chunk, 0)
        put_word(chunk, 0, 0)
        put_word(arena, USED, _LINK)
        while older != 0:
            before = read_word(older, 0)
            call_system_library("free", (older,))
            older = before


@helper
def fill(x: Any, value: Any) -> None:
    """Set all elements of a flat array."""
    for k in range(len(x)):
        x[k] = value


@helper
def copy_all(x: Any, source: Any) -> None:
    """Copy a flat array to another one."""
    for k in range(len(x)):
        x[k] = source[k]


@helper
def find_maximum(x: Any) -> Any:
    """Return the maximum of a flat, nonempty array, which is nan if an element is."""
    result = x[0]
    for k in range(1, len(x)):
        if x[k] > result or x[k] != x[k]:
            result = x[k]
    return result


@helper
def find_minimum(x: Any) -> Any:
    """Return the minimum of a flat, nonempty array, which is nan if an element is."""
    result = x[0]
    for k in range(1, len(x)):
        if x[k] < result or x[k] != x[k]:
            result = x[k]
    return result


@helper
def add_up(x: Any) -> Any:
    """Return the sum of integers."""
    total = np.uint64(0) if x.dtype == np.uint64 else 0
    for k in range(len(x)):
        total += x[k]
    return total


@helper
def concatenate(a: Any, b: Any) -> Any:
    """Concatenate two arrays of one dimension."""
    result = np.empty(len(a) + len(b), a.dtype)
    result[: len(a)] = a
    result[len(a) :] = b
    return result


@helper
def gather(x: Any, index: Any) -> Any:
    """Return the elements of a flat array at the given indices."""
    result = np.empty(len(index), x.dtype)
    for k in range(len(index)):
        result[k] = x[index[k]]
    return result
