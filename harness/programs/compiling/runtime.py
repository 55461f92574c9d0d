"""Runtime of compiled programs, in the compiler's language: lists of integers, and numbers.

All lists share one buffer of items and a table. A row of the table contains a list's start in the
buffer, its length and its capacity; a list that outgrows its capacity moves to the buffer's end. A
dict is a list of alternating keys and values. Results and errors of numbers are those of Python.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from harness.compiler.pointers import add_to_word, array_at, word
from harness.compiler.registry import helper
from harness.programs.compiling.fibers import (
    ITEMS,
    LISTS,
    LOG,
    N_ITEMS,
    N_LISTS,
    N_LOG,
    longs,
    reserve,
)

START, LENGTH, ROOM, N_COLUMNS = range(4)
FEWEST = 4  # minimum capacity of a list that grows


@helper
def table_of(state: int) -> Any:
    """Return the table of all lists."""
    return array_at(word(state, LISTS), (0, N_COLUMNS), np.int64)


@helper
def length_of(state: int, number: int) -> int:
    """Return the length of a list."""
    return int(table_of(state)[number, LENGTH])


@helper(apart=True)
def new_list(state: int, room: int) -> int:
    """Create an empty list, and return its number."""
    reserve(state, LISTS, 1)
    reserve(state, ITEMS, room)
    table, number = table_of(state), word(state, N_LISTS)
    table[number, START], table[number, LENGTH], table[number, ROOM] = word(state, N_ITEMS), 0, room
    add_to_word(state, N_LISTS, 1)
    add_to_word(state, N_ITEMS, room)
    return number


@helper(apart=True)
def _move(state: int, number: int) -> None:
    """Move a list to a place with more capacity."""
    length = length_of(state, number)
    room = 2 * length + FEWEST
    reserve(state, ITEMS, room)
    table, items, to = table_of(state), longs(state, ITEMS), word(state, N_ITEMS)
    start = table[number, START]
    for k in range(length):
        items[to + k] = items[start + k]
    table[number, START], table[number, ROOM] = to, room
    add_to_word(state, N_ITEMS, room)


@helper
def append(state: int, number: int, value: int) -> None:
    """Append an item."""
    table = table_of(state)
    if table[number, LENGTH] == table[number, ROOM]:
        _move(state, number)
    length = table[number, LENGTH]
    longs(state, ITEMS)[table[number, START] + length] = value
    table[number, LENGTH] = length + 1


@helper(apart=True)
def extend(state: int, number: int, by: int) -> None:
    """Append all items of a list, as it is at the start."""
    for k in range(length_of(state, by)):
        append(state, number, longs(state, ITEMS)[table_of(state)[by, START] + k])


@helper(apart=True)
def fill(state: int, start: int, stop: int) -> int:
    """Return a new list of the integers from start to stop, exclusive."""
    n = max(0, stop - start)
    found = new_list(state, n)
    table, items = table_of(state), longs(state, ITEMS)
    first = table[found, START]
    for k in range(n):
        items[first + k] = start + k
    table[found, LENGTH] = n
    return found


@helper
def _address_of(state: int, number: int, place: int) -> int:
    """Return the index in the buffer of a list's item.

    Raises:
        IndexError: if the item does not exist.
    """
    table = table_of(state)
    length = table[number, LENGTH]
    if place < 0:
        place += length
    if place < 0 or place >= length:
        raise IndexError("list index out of range")
    return int(table[number, START] + place)


@helper
def item(state: int, number: int, place: int) -> int:
    """Return an item, counted from the end if place < 0; raise IndexError if there is none."""
    return int(longs(state, ITEMS)[_address_of(state, number, place)])


@helper
def put(state: int, number: int, place: int, value: int) -> None:
    """Replace an item; raise IndexError if it does not exist."""
    longs(state, ITEMS)[_address_of(state, number, place)] = value


@helper
def pop_item(state: int, number: int) -> int:
    """Remove and return the last item; raise IndexError if there is none."""
    found = item(state, number, -1)
    table_of(state)[number, LENGTH] -= 1
    return found


@helper
def _bound(place: int, length: int, step: int) -> int:
    """Return a bound of a slice, limited as in Python."""
    lowest, highest = (0, length) if step > 0 else (-1, length - 1)
    if place < 0:
        place += length
    return min(max(place, lowest), highest)


@helper(apart=True)
def cut(state: int, number: int, start: int, stop: int, step: int) -> int:
    """Return a copy of a part of a list: `number[start:stop:step]`, with step 1 or -1."""
    length = length_of(state, number)
    begin, end = _bound(start, length, step), _bound(stop, length, step)
    n = max(0, (end - begin) * step)
    found = new_list(state, n)
    table, items = table_of(state), longs(state, ITEMS)
    first, source = table[found, START], table[number, START] + begin
    for k in range(n):
        items[first + k] = items[source + k * step]
    table[found, LENGTH] = n
    return found


@helper(apart=True)
def repeat(state: int, number: int, times: int) -> int:
    """Return a new list of all items, repeated `times` times."""
    found = new_list(state, FEWEST)
    for _ in range(times):
        extend(state, found, number)
    return found


@helper(apart=True)
def values_by_key(state: int, number: int) -> int:
    """Return the values of a dict in the order of its keys; the later value of repeated keys."""
    n = length_of(state, number)
    by_key = new_list(state, n)
    items, first = longs(state, ITEMS), table_of(state)[by_key, START]
    start, last = table_of(state)[number, START], first
    for k in range(start, start + n, 2):
        place = last  # insertion sort, as programs set keys nearly in order
        while place > first and items[place - 2] > items[k]:
            place -= 2
        if place > first and items[place - 2] == items[k]:
            items[place - 1] = items[k + 1]
            continue
        for moved in range(last - 1, place - 1, -1):
            items[moved + 2] = items[moved]
        items[place], items[place + 1] = items[k], items[k + 1]
        last += 2
    n = (last - first) // 2
    for k in range(n):
        items[first + k] = items[first + 2 * k + 1]
    table_of(state)[by_key, LENGTH] = n
    return by_key


@helper(apart=True)
def pack(state: int, number: int) -> None:
    """Add a list to the log; raise OverflowError for a number with more than 32 bits."""
    n, odd = length_of(state, number), 0
    reserve(state, LOG, n)
    log, n_log = array_at(word(state, LOG), 0, np.int32), word(state, N_LOG)
    items, start = longs(state, ITEMS), table_of(state)[number, START]
    for k in range(n):
        value = items[start + k]
        odd |= (value + 2**31) >> 32
        log[n_log + k] = value
    if odd != 0:
        raise OverflowError("a number of 32 bits is needed")
    add_to_word(state, N_LOG, n)


@helper(apart=True)
def pack_equal(state: int, value: int, n: int) -> None:
    """Add a 32-bit number to the log n times."""
    reserve(state, LOG, n)
    log, n_log = array_at(word(state, LOG), 0, np.int32), word(state, N_LOG)
    for k in range(n):
        log[n_log + k] = value
    add_to_word(state, N_LOG, n)


# --- numbers ---------------------------------------------------------------------------------


@helper
def rest(a: Any, b: Any) -> float:
    """Return a % b if one is a float, as in CPython except for the sign of a 0."""
    if b == 0:
        raise ZeroDivisionError("float modulo")
    found = math.fmod(a, b)
    return found + float(b) if found != 0.0 and (found < 0.0) != (b < 0) else found


@helper
def whole(a: float) -> int:
    """Return int(a); raise OverflowError if that needs more than 62 bits."""
    if not abs(a) <= 2.0**61:
        raise OverflowError("a number of more than 62 bits")
    return int(a)


@helper
def mixed(state: Any, part: int) -> Any:
    """Mix one more number of a key into a state; see harness.programs.decisions."""
    state = (state ^ np.uint64(part)) + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@helper
def drawn(state: Any) -> float:
    """Return the number in [0, 1) that a state determines."""
    return float(state >> np.uint64(11)) * 2.0**-53
