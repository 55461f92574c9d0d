"""Lists of integers that compiled programs keep in one array, and the numbers that they draw.

table (lists, 3): where each begins in `items`, how long it is, and how long it can become there.
Room is looked for by those who call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.machine.compiled import compiled, inlined
from harness.values.arrays import IntArray

Longs = NDArray[np.int64]
START, LENGTH, ROOM = range(3)
FEWEST = 4  # of a list that grows
MOST = 2.0**61  # of a number, either way


@inlined
def begin(table: Longs, number: int, start: int, room: int) -> int:
    """An empty list; where the next one may begin."""
    table[number, START], table[number, LENGTH], table[number, ROOM] = start, 0, room
    return start + room


@inlined
def is_full(table: Longs, number: int) -> bool:
    """Whether one more item moves it behind all lists, which takes room."""
    return bool(table[number, LENGTH] == table[number, ROOM])


@compiled
def append(table: Longs, items: Longs, number: int, value: int, n_used: int) -> int:
    """Add an item, behind all lists where it no longer fits; where the next list may begin."""
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


@compiled
def item(table: Longs, items: Longs, number: int, place: int) -> int:
    """An item, counted from the end where place is below 0; raises IndexError for none."""
    length = table[number, LENGTH]
    if place < 0:
        place += length
    if place < 0 or place >= length:
        raise IndexError("list index out of range")
    return int(items[table[number, START] + place])


@compiled
def put(table: Longs, items: Longs, number: int, place: int, value: int) -> None:
    """Replace an item; raises IndexError for none."""
    length = table[number, LENGTH]
    if place < 0:
        place += length
    if place < 0 or place >= length:
        raise IndexError("list index out of range")
    items[table[number, START] + place] = value


@compiled
def pop(table: Longs, items: Longs, number: int) -> int:
    """Take the last item away; raises IndexError for none."""
    length = table[number, LENGTH]
    if length == 0:
        raise IndexError("pop from an empty list")
    table[number, LENGTH] = length - 1
    return int(items[table[number, START] + length - 1])


@inlined
def length_of(start: int, stop: int, step: int) -> int:
    """Of a slice: numbers from start on that do not reach stop."""
    if step > 0:
        return max(0, (stop - start + step - 1) // step)
    return max(0, (start - stop - step - 1) // -step)


@inlined
def bound(place: int, length: int, step: int) -> int:
    """A bound of a slice, as Python takes it."""
    lowest, highest = (0, length) if step > 0 else (-1, length - 1)
    if place < 0:
        place += length
    return min(max(place, lowest), highest)


@compiled
def copy(table: Longs, items: Longs, number: int, to: int, start: int, step: int) -> None:
    """Fill list `to`, which has room, with items of another one; as many as it has room for."""
    first, target, n = table[number, START] + start, table[to, START], table[to, ROOM]
    for k in range(n):
        items[target + k] = items[first + k * step]
    table[to, LENGTH] = n


@compiled
def fill(table: Longs, items: Longs, to: int, start: int, step: int) -> None:
    """Fill list `to`, which has room, with numbers that are `step` apart."""
    target, n = table[to, START], table[to, ROOM]
    for k in range(n):
        items[target + k] = start + k * step
    table[to, LENGTH] = n


@compiled
def sort(table: Longs, items: Longs, number: int) -> None:
    """In place, smallest first."""
    start = table[number, START]
    items[start : start + table[number, LENGTH]].sort()


@compiled
def lookup(table: Longs, items: Longs, number: int, key: int) -> int:
    """Of a dict, the newest value; raises KeyError for none."""
    start = table[number, START]
    for k in range(start + table[number, LENGTH] - 2, start - 1, -2):
        if items[k] == key:
            return int(items[k + 1])
    raise KeyError("a key that was not set")


@compiled
def keys(table: Longs, items: Longs, number: int, to: int, values: bool) -> None:
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


@inlined
def times(a: int, b: int) -> int:
    """A product; raises OverflowError where Python's would need more than 62 bits."""
    if abs(float(a) * float(b)) > MOST:
        raise OverflowError("a number of more than 62 bits")
    return a * b


@inlined
def plus(a: int, b: int) -> int:
    """A sum; raises OverflowError where Python's would need more than 62 bits."""
    if abs(float(a) + float(b)) > MOST:
        raise OverflowError("a number of more than 62 bits")
    return a + b


@inlined
def whole(a: float) -> int:
    """What int() makes of a float; raises OverflowError where that needs more than 62 bits."""
    if not abs(a) <= MOST:
        raise OverflowError("a number of more than 62 bits")
    return int(a)


@inlined
def mixed(state: Any, part: int) -> Any:
    """What a state becomes by one more number of a key: see harness.programs.decisions."""
    state = (state ^ np.uint64(part)) + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@inlined
def drawn(state: Any) -> float:
    """The number in [0, 1) that a state stands for."""
    return float(state >> np.uint64(11)) * 2.0**-53


@compiled
def pack(log: IntArray, n_log: int, table: Longs, items: Longs, number: int) -> int:
    """Add a list to the log; returns 1 where a number has more than 32 bits."""
    start, n, odd = table[number, START], table[number, LENGTH], 0
    for k in range(n):
        value = items[start + k]
        odd |= (value + 2**31) >> 32
        log[n_log + k] = value
    return 1 if odd else 0
