"""Arrays in compiled code by their numbers in a table: no argument costs Python anything.

A call with forty arrays takes Python 40 us; a call with a table's address 1 us, and compiled code
can make it, too. A table holds two int64 an array: its address, and its number of elements.
"""

from __future__ import annotations

import numpy as np

from harness.compiler.pointers import HALF_WORD_BYTES, array_at, word
from harness.compiler.registry import helper
from harness.values.arrays import Flags, IntArray, IntTable, Longs, LongTable


@helper
def view_int32(table: int, k: int) -> IntArray:
    """Return array k of a table: int32."""
    return array_at(word(table, 2 * k), word(table, 2 * k + 1), np.int32)


@helper
def view_int64(table: int, k: int) -> Longs:
    """Return array k of a table: int64."""
    return array_at(word(table, 2 * k), word(table, 2 * k + 1), np.int64)


@helper
def part_int32(table: int, k: int, begin: int, end: int) -> IntArray:
    """Return some elements of array k of a table: int32."""
    return array_at(word(table, 2 * k) + HALF_WORD_BYTES * begin, end - begin, np.int32)


@helper
def rows_int32(table: int, k: int, width: int) -> IntTable:
    """Return array k of a table, which holds its elements row by row: int32, rows of a width."""
    return array_at(word(table, 2 * k), (word(table, 2 * k + 1) // max(width, 1), width), np.int32)


@helper
def rows_int64(table: int, k: int, width: int) -> LongTable:
    """Return the same of int64."""
    return array_at(word(table, 2 * k), (word(table, 2 * k + 1) // width, width), np.int64)


@helper
def view_flags(table: int, k: int, shape: tuple[int, ...]) -> Flags:
    """Return array k of a table in a shape: bool."""
    return array_at(word(table, 2 * k), shape, np.bool_)
