"""Arrays in compiled functions: elements, slices, new arrays, and NumPy's functions of arrays."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.kinds import ELEMENTS
from dynbatch.harness.compiler.pointers import WORDS_OF_ARRAY, get_address, view_arrays
from dynbatch.harness.compiler.registry import load_generated
from tests.support.both_ways import run_both, run_both_on

Words = NDArray[np.int64]
Table = Annotated[NDArray[np.int32], 2]
Cube = Annotated[NDArray[np.float64], 3]


def words(least: int = 0, most: int = 8) -> st.SearchStrategy[Words]:
    numbers = st.lists(st.integers(-9, 9), min_size=least, max_size=most)
    return numbers.map(lambda found: np.array(found, np.int64))


def tables(least: int = 0) -> st.SearchStrategy[NDArray[np.int32]]:
    shape = st.tuples(st.integers(least, 4), st.integers(least, 4))
    return shape.map(lambda one: np.arange(one[0] * one[1], dtype=np.int32).reshape(one))


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_of_every_kind_are_loaded_and_stored(name: str) -> None:
    text = (
        "import numpy as np\nfrom numpy.typing import NDArray\n"
        "from dynbatch.harness.compiler.compiled import compiled\n\n@compiled\n"
        f"def run(x: NDArray[np.{name}], y: NDArray[np.{name}]) -> object:\n"
        "    for k in range(1, len(x)):\n"
        "        y[k] = x[k - 1]\n"
        "        if x[k] > x[0]:\n"
        "            y[k] = max(x[k], x[0])\n"
        "    y[0] = x[-1]\n"
        "    return x[0], x[1], y[2] == x[1], x.dtype == y.dtype, bool(x[0])\n"
    )
    run = load_generated(text, "run")
    kind = np.dtype(name)
    if kind.kind == "f":
        ends = [np.finfo(kind).min, np.finfo(kind).max, np.nan, -0.0, np.inf, 1e-40]
    else:
        ends = [0, 1] if kind.kind == "b" else [np.iinfo(kind).min, np.iinfo(kind).max, 0, 1]
    for shift in range(len(ends)):
        x = np.roll(np.array(ends + ends, kind), shift)
        run_both(run, x, np.zeros_like(x))


@compiled
def stored(x: NDArray[np.uint8], y: NDArray[np.float32], z: NDArray[np.bool_], n: int) -> None:
    x[0] = n
    x[1] += n
    y[0] = n
    y[1] = 0.1
    z[0] = n
    z[1] = n > 300


@given(st.integers(-1000, 1000))
def test_stored_value_is_converted_to_the_element_type(n: int) -> None:
    x, y, z = np.full(2, 7, np.uint8), np.zeros(2, np.float32), np.zeros(2, np.bool_)
    stored(x, y, z, n)
    assert x.tolist() == [n % 256, (n + 7) % 256]
    assert y.tolist() == [n, float(np.float32(0.1))]
    assert z.tolist() == [n != 0, n > 300]


@compiled
def in_parts(x: Words, a: int, b: int, c: int, d: int) -> tuple[Words, Words, Words, Words, int]:
    part = x[a:b]
    inner = x[a:][c:d]
    total = 0
    for one in x[: len(inner)]:
        total += one
    part[:] = 100
    x[c:d] = total
    return part, inner, x[:d], x[1:-1][-2:], len(x[a:]) + part.size


@compiled
def moved(x: Words, y: Words, k: int) -> None:
    x[k:] = x[: len(x) - k]  # overlaps itself
    y[: len(y) - k] = y[k:]
    x[: len(y)] = y[: len(x)]


@given(words(), words(), st.integers(0, 8))
def test_a_part_is_copied_over_itself_as_if_it_lay_elsewhere(x: Words, y: Words, k: int) -> None:
    k = min(k, len(x), len(y))
    run_both(moved, x, y, k)


@compiled
def of_rows(x: Table, i: int, j: int) -> tuple[Any, ...]:
    rows, columns = x.shape
    row = x[i]
    row[j] += 5
    x[-1, -1] -= 1
    total = 0
    for one in x:
        for k in range(len(one)):
            total += one[k] * x[i, k]
    x[i, j:] = x[i][:1][0] if j else 3
    x[0] = x[i]
    below = x[i:]
    below[0, j] = 9
    return rows, columns, x.size, len(x), total, x[i, j], x[i][j]


@given(tables(least=1), st.data())
def test_tables_are_rows_of_numbers(x: Any, data: st.DataObject) -> None:
    i, j = (data.draw(st.integers(0, n - 1)) for n in x.shape)
    run_both(of_rows, x, i, j)


@compiled
def of_cubes(x: Cube, i: int) -> tuple[Any, ...]:
    a, b, c = x.shape
    x[i, 1, 0] = 0.5
    x[0][1] = x[i, 0]
    x[i, 1:] = x[i][:-1]
    total = 0.0
    for table in x[1:]:
        for row in table:
            total += row[-1]
    made = np.zeros((b, c, 2))
    made[:] = 1.5
    made[0, 0, 1] = total
    return a * b * c, x.size, total, x[-1, -1, -1], x[i, 1, 2], made.size, made[0][0][1]


@compiled
def made_of(x: Words, n: int) -> tuple[Words, Words, NDArray[np.float64], Table, Words, Words]:
    first, second = np.full(n, 7), np.empty_like(x)
    second[:] = x
    third = np.ones((n, 2)).ravel()
    third[n:] = second.copy()[0] if len(x) else 2
    fourth = np.zeros((2, n), np.int32)
    fourth[1, : min(n, len(x))] = x[: min(n, len(x))]
    copied = x.copy()
    copied[:] = np.zeros_like(x)
    fifth = second.astype(np.float64).astype(np.float32)
    total = np.full(1, len(fifth), dtype=np.int64)
    for one in fifth:
        total[0] += int(one)
    return first, second, third, fourth, copied, np.concatenate((total, x, first[:1], x[:0]))


@compiled
def of_whole(
    x: Words, index: Words, flags: NDArray[np.bool_], y: NDArray[np.float32], z: NDArray[np.uint64]
) -> tuple[Any, ...]:
    return x.max(), x.min(), x.sum(), x[index], flags.sum(), y.max(), y.min(), z.sum()


@given(words(least=1), st.data())
def test_whole_arrays_are_summed_and_gathered(x: Words, data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, len(x) - 1)).map(lambda k: np.array(k, np.int64)))
    flags = data.draw(st.lists(st.booleans()).map(lambda k: np.array(k, np.bool_)))
    floats = st.lists(st.floats(width=32), min_size=1).map(lambda y: np.array(y, np.float32))
    large = np.array([2**63, len(x)], np.uint64)
    run_both(of_whole, x, index, flags, data.draw(floats), large)


@compiled
def named_anew(x: Words, y: Words, n: int) -> tuple[Words, Words]:
    for _ in range(n):
        x, y = y, x
        grown = np.concatenate((x, y[:1]))
        x = grown if n % 2 else x[:1]
    longer = x if len(x) > len(y) else y
    longer[:1] = 50
    for one in x:
        x = y
        y[0] += one
    return x, longer


CUBE, SMALL, PLACE = np.arange(3 * 2 * 4.0).reshape(3, 2, 4), st.integers(0, 5), st.integers(0, 10)
SAME: dict[str, tuple[Any, ...]] = {
    "slices end where the array ends": (in_parts, words(), *[PLACE] * 4),
    "cubes are rows of tables": (of_cubes, st.just(CUBE), st.integers(0, 2)),
    "new arrays are those of NumPy": (made_of, words(), SMALL),
    "names change in loops and choices": (named_anew, words(least=1), words(least=1), SMALL),
}


@pytest.mark.parametrize("name", SAME)
def test_arrays_are_those_of_numpy(name: str) -> None:
    run_both_on(*SAME[name])


@compiled
def sized(n: int, m: int) -> int:
    return len(np.empty((n, m), np.int32)) + len(np.zeros(n, np.int8))


@pytest.mark.parametrize(
    ("n", "m"),
    [
        *((-1, 1), (1, -1), (-1, -1), (2**62, 1), (1, 2**62), (2**63 - 1, 1)),
        *((2**32, 2**32), (2**31, 2**31), (2**61, 2), (2**47, 2**47), (-(2**62), 4)),
    ],
)
def test_absurd_sizes_are_an_error_and_nothing_is_lost(n: int, m: int) -> None:
    with pytest.raises(MemoryError, match="out of memory for an array"):
        sized(n, m)
    assert sized(3, 2) == 6


class Named(NamedTuple):
    words: Words
    table: Table
    cube: Cube


@compiled
def doubled(address: int) -> int:
    found = view_arrays(address, Named)
    for k in range(len(found.words)):
        found.words[k] *= 2
    found.table[-1, 1] = len(found.cube)
    found.cube[1, 2, 0] = found.words[0]
    return len(found.table)


def test_arrays_are_found_by_their_names_in_a_table() -> None:
    words, rows = np.arange(1, 4, dtype=np.int64), np.zeros((5, 2), np.int32)
    found = Named(words, rows, np.zeros((2, 3, 2)))
    table = np.zeros((len(found), WORDS_OF_ARRAY), np.int64)
    for place, one in zip(table, found, strict=True):
        place[: 1 + one.ndim] = get_address(one), *one.shape
    assert doubled(get_address(table)) == 5
    assert found.words.tolist() == [2, 4, 6]
    assert (found.table[-1, 1], found.cube[1, 2, 0]) == (2, 2.0)
    with pytest.raises(NotImplementedError):
        doubled.function(get_address(table))
