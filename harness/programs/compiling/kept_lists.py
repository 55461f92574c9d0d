"""Lists of integers that compiled programs keep in one array.

table (lists, 3): where each begins in `items`, how long it is, and how long it can become there.
Room is looked for by those who call.
"""

from __future__ import annotations

from harness.compiler.registry import helper
from harness.values.arrays import IntArray, Longs, LongTable

START, LENGTH, ROOM = range(3)
FEWEST = 4  # of a list that grows


@helper
def begin(table: LongTable, number: int, start: int, room: int) -> int:
    """Begin an empty list; returns where the next may begin."""
    table[number, START], table[number, LENGTH], table[number, ROOM] = start, 0, room
    return start + room


@helper
def is_full(table: LongTable, number: int) -> bool:
    """Return whether one more item moves it behind all lists, which takes room."""
    return bool(table[number, LENGTH] == table[number, ROOM])


@helper(apart=True)
def append(table: LongTable, items: Longs, number: int, value: int, n_used: int) -> int:
    """Add an item, behind all lists where it no longer fits; returns where the next may begin."""
    start, length = table[number, START], table[number, LENGTH]
    if length == table[number, ROOM]:
        for k in range(length):
            items[n_used + k] = items[start + k]
        table[number, START] = start = n_used
        table[number, ROOM] = 2 * length + FEWEST
        n_used += 2 * length + FEWEST
    items[start + length] = value
    table[number, LENGTH] = length + 1
    return n_used


@helper
def item(table: LongTable, items: Longs, number: int, place: int) -> int:
    """Return an item, counted from the end where place is below 0; raises IndexError for none."""
    length = table[number, LENGTH]
    if place < 0:
        place += length
    if place < 0 or place >= length:
        raise IndexError("list index out of range")
    return int(items[table[number, START] + place])


@helper
def put(table: LongTable, items: Longs, number: int, place: int, value: int) -> None:
    """Replace an item; raises IndexError for none."""
    length = table[number, LENGTH]
    if place < 0:
        place += length
    if place < 0 or place >= length:
        raise IndexError("list index out of range")
    items[table[number, START] + place] = value


@helper
def pop(table: LongTable, items: Longs, number: int) -> int:
    """Take the last item away; raises IndexError for none."""
    length = table[number, LENGTH]
    if length == 0:
        raise IndexError("pop from an empty list")
    table[number, LENGTH] = length - 1
    return int(items[table[number, START] + length - 1])


@helper
def length_of(start: int, stop: int, step: int) -> int:
    """Return how many numbers a slice has, from start on, that do not reach stop."""
    if step > 0:
        return max(0, (stop - start + step - 1) // step)
    return max(0, (start - stop - step - 1) // -step)


@helper
def bound(place: int, length: int, step: int) -> int:
    """Return a bound of a slice, as Python takes it."""
    lowest, highest = (0, length) if step > 0 else (-1, length - 1)
    if place < 0:
        place += length
    return min(max(place, lowest), highest)


@helper(apart=True)
def copy(table: LongTable, items: Longs, number: int, to: int, start: int, step: int) -> None:
    """Fill list `to`, which has room, with items of another one; as many as it has room for."""
    first, target, n = table[number, START] + start, table[to, START], table[to, ROOM]
    for k in range(n):
        items[target + k] = items[first + k * step]
    table[to, LENGTH] = n


@helper(apart=True)
def fill(table: LongTable, items: Longs, to: int, start: int, step: int) -> None:
    """Fill list `to`, which has room, with numbers that are `step` apart."""
    target, n = table[to, START], table[to, ROOM]
    for k in range(n):
        items[target + k] = start + k * step
    table[to, LENGTH] = n


@helper(apart=True)
def sort(table: LongTable, items: Longs, number: int) -> None:
    """Sort a list in place, smallest first."""
    start = table[number, START]
    items[start : start + table[number, LENGTH]].sort()


@helper(apart=True)
def lookup(table: LongTable, items: Longs, number: int, key: int) -> int:
    """Return the newest value of a dict's key; raises KeyError for none."""
    start = table[number, START]
    for k in range(start + table[number, LENGTH] - 2, start - 1, -2):
        if items[k] == key:
            return int(items[k + 1])
    raise KeyError("a key that was not set")


@helper(apart=True)
def keys(table: LongTable, items: Longs, number: int, to: int, values: bool) -> None:
    """Fill list `to`, which has room for all of a dict, with its keys, sorted, or their values."""
    start, end = table[number, START], table[number, START] + table[number, LENGTH]
    target = last = table[to, START]
    for k in range(start, end, 2):
        place = last  # insertion: what programs set is nearly in order
        while place > target and items[place - 2] > items[k]:
            items[place] = items[place - 2]
            items[place + 1] = items[place - 1]
            place -= 2
        if place > target and items[place - 2] == items[k]:
            items[place - 1] = items[k + 1]
            for moved in range(place, last, 2):  # nothing was to be moved
                items[moved] = items[moved + 2]
                items[moved + 1] = items[moved + 3]
            continue
        items[place], items[place + 1] = items[k], items[k + 1]
        last += 2
    for k in range((last - target) // 2):
        items[target + k] = items[target + 2 * k + (1 if values else 0)]
    table[to, LENGTH] = (last - target) // 2


@helper(apart=True)
def pack(log: IntArray, n_log: int, table: LongTable, items: Longs, number: int) -> int:
    """Add a list to the log; returns 1 where a number has more than 32 bits."""
    start, n, odd = table[number, START], table[number, LENGTH], 0
    for k in range(n):
        value = items[start + k]
        odd |= (value + 2**31) >> 32
        log[n_log + k] = value
    return 1 if odd else 0
