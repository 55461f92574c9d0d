"""Runtime of compiled programs, in the compiler's language: lists of integers, and numbers.

All lists share one buffer of items and a table. A row of the table contains a list's start in the
buffer, its length and its capacity; a list that outgrows its capacity moves to the buffer's end. A
dict is a list of alternating keys and values. Results and errors of numbers are those of Python.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynbatch.harness.compiler.pointers import add_to_word, read_word, view_array
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.programs.compiling.fibers import (
    ITEMS,
    LISTS,
    LOG,
    N_ITEMS,
    N_LISTS,
    N_LOG,
    reserve,
    view_longs,
)

START, LENGTH, ROOM, N_COLUMNS = range(4)
FEWEST = 4  # minimum capacity of a list that grows


@helper
def view_table(state: int) -> Any:
    """Return the table of all lists."""
    return view_array(read_word(state, LISTS), (0, N_COLUMNS), np.int64)


@helper
def read_length(state: int, number: int) -> int:
    """Return the length of a list."""
    return int(view_table(state)[number, LENGTH])


@helper(apart=True)
def make_list(state: int, room: int) -> int:
    """Create an empty list, and return its number."""
    reserve(state, LISTS, 1)
    reserve(state, ITEMS, room)
    table, number = view_table(state), read_word(state, N_LISTS)
    table[number, START], table[number, LENGTH], table[number, ROOM] = (
        read_word(state, N_ITEMS),
        0,
        room,
    )
    add_to_word(state, N_LISTS, 1)
    add_to_word(state, N_ITEMS, room)
    return number


@helper(apart=True)
def _move(state: int, number: int) -> None:
    """Move a list to a place with more capacity."""
    length = read_length(state, number)
    room = 2 * length + FEWEST
    reserve(state, ITEMS, room)
    table, items, to = view_table(state), view_longs(state, ITEMS), read_word(state, N_ITEMS)
    start = table[number, START]
    for k in range(length):
        items[to + k] = items[start + k]
    table[number, START], table[number, ROOM] = to, room
    add_to_word(state, N_ITEMS, room)


@helper
def append(state: int, number: int, value: int) -> None:
    """Append an item."""
    table = view_table(state)
    if table[number, LENGTH] == table[number, ROOM]:
        _move(state, number)
    length = table[number, LENGTH]
    view_longs(state, ITEMS)[table[number, START] + length] = value
    table[number, LENGTH] = length + 1


@helper(apart=True)
def extend(state: int, number: int, by: int) -> None:
    """Append all items of a list, as it is at the start."""
    for k in range(read_length(state, by)):
        append(state, number, view_longs(state, ITEMS)[view_table(state)[by, START] + k])


@helper(apart=True)
def fill(state: int, start: int, stop: int) -> int:
    """Return a new list of the integers from start to stop, exclusive."""
    n = max(0, stop - start)
    result = make_list(state, n)
    table, items = view_table(state), view_longs(state, ITEMS)
    first = table[result, START]
    for k in range(n):
        items[first + k] = start + k
    table[result, LENGTH] = n
    return result


@helper
def _find_address(state: int, number: int, index: int) -> int:
    """Return the index in the buffer of a list's item.

    Raises:
        IndexError: if the item does not exist.
    """
    table = view_table(state)
    length = table[number, LENGTH]
    if index < 0:
        index += length
    if index < 0 or index >= length:
        raise IndexError("list index out of range")
    return int(table[number, START] + index)


@helper
def get_item(state: int, number: int, index: int) -> int:
    """Return an item, counted from the end if place < 0; raise IndexError if there is none."""
    return int(view_longs(state, ITEMS)[_find_address(state, number, index)])


@helper
def pop_item(state: int, number: int) -> int:
    """Remove and return the last item; raise IndexError if there is none."""
    value = get_item(state, number, -1)
    view_table(state)[number, LENGTH] -= 1
    return value


@helper
def _clip_bound(index: int, length: int, step: int) -> int:
    """Return a bound of a slice, limited as in Python."""
    lowest, highest = (0, length) if step > 0 else (-1, length - 1)
    if index < 0:
        index += length
    return min(max(index, lowest), highest)


@helper(apart=True)
def cut(state: int, number: int, start: int, stop: int, step: int) -> int:
    """Return a copy of a part of a list: `number[start:stop:step]`, with step 1 or -1."""
    length = read_length(state, number)
    begin, end = _clip_bound(start, length, step), _clip_bound(stop, length, step)
    n = max(0, (end - begin) * step)
    result = make_list(state, n)
    table, items = view_table(state), view_longs(state, ITEMS)
    first, source = table[result, START], table[number, START] + begin
    for k in range(n):
        items[first + k] = items[source + k * step]
    table[result, LENGTH] = n
    return result


@helper(apart=True)
def repeat(state: int, number: int, times: int) -> int:
    """Return a new list of all items, repeated `times` times."""
    result = make_list(state, FEWEST)
    for _ in range(times):
        extend(state, result, number)
    return result


@helper(apart=True)
def sort_values_by_key(state: int, number: int) -> int:
    """Return the values of a dict in the order of its keys; the later value of repeated keys."""
    n = read_length(state, number)
    by_key = make_list(state, n)
    items, first = view_longs(state, ITEMS), view_table(state)[by_key, START]
    start, last = view_table(state)[number, START], first
    for k in range(start, start + n, 2):
        index = last  # insertion sort, as programs set keys nearly in order
        while index > first and items[index - 2] > items[k]:
            index -= 2
        if index > first and items[index - 2] == items[k]:
            items[index - 1] = items[k + 1]
            continue
        for moved in range(last - 1, index - 1, -1):
            items[moved + 2] = items[moved]
        items[index], items[index + 1] = items[k], items[k + 1]
        last += 2
    n = (last - first) // 2
    for k in range(n):
        items[first + k] = items[first + 2 * k + 1]
    view_table(state)[by_key, LENGTH] = n
    return by_key


@helper(apart=True)
def pack(state: int, number: int) -> None:
    """Add a list to the log; raise OverflowError for a number with more than 32 bits."""
    n, odd = read_length(state, number), 0
    reserve(state, LOG, n)
    log, n_log = view_array(read_word(state, LOG), 0, np.int32), read_word(state, N_LOG)
    items, start = view_longs(state, ITEMS), view_table(state)[number, START]
    for k in range(n):
        value = items[start + k]
        odd |= (value + 2**31) >> 32
        log[n_log + k] = value
    if odd != 0:
        raise OverflowError("expected a 32-bit number")
    add_to_word(state, N_LOG, n)


@helper(apart=True)
def pack_equal(state: int, value: int, n: int) -> None:
    """Add a 32-bit number to the log n times."""
    reserve(state, LOG, n)
    log, n_log = view_array(read_word(state, LOG), 0, np.int32), read_word(state, N_LOG)
    for k in range(n):
        log[n_log + k] = value
    add_to_word(state, N_LOG, n)


# --- numbers ---------------------------------------------------------------------------------


@helper
def compute_remainder(a: Any, b: Any) -> float:
    """Return a % b if one is a float, as in CPython except for the sign of a 0."""
    if b == 0:
        raise ZeroDivisionError("float modulo")
    remainder = math.fmod(a, b)
    return remainder + float(b) if remainder != 0.0 and (remainder < 0.0) != (b < 0) else remainder


@helper
def to_integer(a: float) -> int:
    """Return int(a); raise OverflowError if that needs more than 62 bits."""
    if not abs(a) <= 2.0**61:
        raise OverflowError("a number of more than 62 bits")
    return int(a)


@helper
def mix_key(state: Any, part: int) -> Any:
    """Mix one more number of a key into a state; see dynbatch.harness.programs.decisions."""
    state = (state ^ np.uint64(part)) + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@helper
def draw_number(state: Any) -> float:
    """Return the number in [0, 1) that a state determines."""
    return float(state >> np.uint64(11)) * 2.0**-53
