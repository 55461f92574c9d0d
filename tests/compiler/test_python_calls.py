"""Calls from Python: accepted arguments, returned results, and no leaks."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.pointers import (
    FAILED,
    call_for_number,
    get_address,
    load_atomic,
    store_atomic,
)
from dynbatch.harness.compiler.registry import load_generated
from dynbatch.harness.errors import CompileError
from tests.support.both_ways import run_both
from tests.support.processes import count_given_out, end_python

Words = NDArray[np.int64]
Table = Annotated[NDArray[np.float32], 2]
MOST = 2**63 - 1


class Point(NamedTuple):
    x: float
    y: float


class Path(NamedTuple):
    begin: Point
    end: Point
    counts: Words


@compiled
def of_numbers(n: int, x: float, flag: bool, single: np.float32) -> tuple[int, float, bool, float]:
    return n, x, flag, single


@compiled
def of_arrays(words: Words, table: Table, flags: NDArray[np.bool_]) -> int:
    return len(words) + table.size + len(flags)


@compiled
def of_tuples(path: Path, both: tuple[int, tuple[float, Words]]) -> tuple[Path, Words]:
    number, (share, counts) = both
    begin = Point(path.begin.x + share, path.end.y)
    return Path(begin, path.begin, path.counts), counts[number:]


@compiled
def nothing_for() -> None:
    """Take nothing and return nothing."""


def test_numbers_of_python_and_numpy_are_taken() -> None:
    whole = 0, -1, True, MOST, -MOST - 1, np.int8(-5), np.uint64(7)
    floats = 0.5, -1.0, 3, True, np.float32(0.1), np.float64("nan"), np.int16(2)
    flags = True, False, np.True_, 0, "text"
    for n, x, flag in itertools.product(whole, floats, flags):
        found = of_numbers(n, x, flag, np.float32(0.25))
        assert [type(one) for one in found] == [int, float, bool, float]
        np.testing.assert_array_equal(found, (int(n), float(x), bool(flag), 0.25))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((1.0, 1.0, True, 1.0), TypeError, "'float' object cannot be"),
        (("1", 1.0, True, 1.0), TypeError, "'str' object cannot be"),
        ((None, 1.0, True, 1.0), TypeError, "'NoneType' object cannot be"),
        ((MOST + 1, 1.0, True, 1.0), OverflowError, "too big"),
        ((1, "x", True, 1.0), TypeError, "must be real number, not str"),
        ((1, 1j, True, 1.0), TypeError, "must be real number, not complex"),
        ((1, 1.0, np.zeros(2), 1.0), ValueError, "truth value of an array"),
        ((1, 1.0, True), TypeError, "of_numbers: expected 4 arguments: n, x, flag, single"),
        ((1, 1.0, True, 1.0, 2), TypeError, "of_numbers: expected 4 arguments: n, x, flag, single"),
    ],
)
def test_other_numbers_are_refused(
    arguments: tuple[Any, ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        of_numbers(*arguments)


WORDS, TABLE, FLAGS = np.arange(4), np.zeros((2, 3), np.float32), np.zeros(5, np.bool_)
SHIFTED = np.frombuffer(bytes(33), np.uint8)[1:].view(np.int64)
ODD_ARRAYS = [
    ("words", [1, 2]),
    ("words", None),
    ("words", np.int64(1)),
    ("words", np.array(1)),
    ("words", WORDS.astype(np.int32)),
    ("words", WORDS.astype(np.uint64)),
    ("words", WORDS.astype(float)),
    ("words", WORDS.astype(">i8")),
    ("words", WORDS[::2]),
    ("words", WORDS[::-1]),
    ("words", WORDS.reshape(2, 2)),
    ("words", WORDS.view(np.ma.MaskedArray)),
    ("words", SHIFTED),
    ("table", TABLE[0]),
    ("table", TABLE.T),
    ("table", TABLE[:, 1:]),
    ("table", TABLE[None]),
    ("flags", FLAGS.astype(np.uint8)),
]


@pytest.mark.parametrize(("name", "value"), ODD_ARRAYS)
def test_arrays_other_than_declared_are_refused(name: str, value: Any) -> None:
    given = {"words": WORDS, "table": TABLE, "flags": FLAGS, name: value}
    with pytest.raises(TypeError, match=f"of_arrays: expected a contiguous array of .* as {name}"):
        of_arrays(*given.values())


def test_arrays_as_declared_are_taken() -> None:
    assert of_arrays(WORDS, TABLE, FLAGS) == 4 + 6 + 5
    for words in (WORDS[:0], WORDS[1:], WORDS.astype(np.longlong), WORDS[:0:-1][:0]):
        assert of_arrays(words, TABLE[1:], FLAGS[:0]) == len(words) + 3
    assert of_arrays(WORDS, np.zeros((0, 3), np.float32), FLAGS) == 4 + 5
    assert of_arrays(WORDS, flags=FLAGS, table=TABLE[1:]) == 4 + 3 + 5
    with pytest.raises(TypeError, match="unexpected keyword argument 'odd'"):
        of_arrays(WORDS, TABLE, FLAGS, odd=1)  # type: ignore[call-arg]
    assert of_arrays(WORDS, np.asfortranarray(TABLE[:1]), FLAGS) == 4 + 3 + 5


def test_tuples_go_in_and_out() -> None:
    path = Path(Point(1.0, 2.0), Point(3.0, 4.0), np.arange(3))
    run_both(of_tuples, path, (2, (0.5, np.arange(4))))
    run_both(of_tuples, path, (0, (0.5, np.arange(0))))
    found, _ = of_tuples(tuple(path), (2, (0.5, np.arange(4))))
    assert found.counts is not path.counts
    assert nothing_for() is None
    with pytest.raises(TypeError, match="nothing_for: expected 0 arguments"):
        nothing_for(1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("both", "name"),
    [
        (None, "tuple of 2 as both"),
        ([1, 2], "tuple of 2 as both"),
        ((1,), "tuple of 2 as both"),
        ((1, 2, 3), "tuple of 2 as both"),
        ((1, 2), r"tuple of 2 as both\[1\]"),
        ((1, (0.5, WORDS[::2])), r"contiguous array of int64 .* as both\[1\]\[1\]"),
    ],
)
def test_other_tuples_are_refused(both: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"of_tuples: expected a {name}$"):
        of_tuples(Path(Point(1.0, 2.0), Point(3.0, 4.0), WORDS), both)


@pytest.mark.parametrize("returned", ["object", "tuple[A, B]", "B", "A | None"])
def test_tuples_with_names_are_returned_as_declared(returned: str) -> None:
    text = (
        "from typing import NamedTuple\nfrom dynbatch.harness.compiler.compiled import compiled\n"
        "class A(NamedTuple):\n    a: int\nclass B(NamedTuple):\n    a: int\n"
        f"@compiled\ndef run(n: int) -> {returned}:\n    return A(n)\n"
    )
    run = load_generated(text, "run")
    if "A" in returned and "B" not in returned:
        assert run(3) == (3,)
        return
    with pytest.raises(CompileError, match="run: the returned tuples differ"):
        run(3)


@compiled
def in_memory(x: Words, n: int) -> tuple[Words, int]:
    total = 0
    for _ in range(n):
        total += len(np.zeros(1000, np.int64))
    if len(x) == 3:
        raise ValueError("three")
    made = np.concatenate((x, np.full(n, total)))
    return made, n


def test_calls_leak_no_references_or_memory() -> None:
    x, odd = np.arange(4), np.arange(3)
    counted = x, odd, None, Point, Path, np.ndarray, x.dtype

    def call_often(n: int) -> None:
        for _ in range(n):
            in_memory(x, 20)
            of_tuples(Path(Point(1.0, 2.0), Point(3.0, 4.0), x), (0, (0.5, x)))
            with suppress(ValueError):
                in_memory(odd, 20)
            with suppress(TypeError):
                in_memory(odd, "text")  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="three"):
        in_memory(odd, 20)
    call_often(20)
    gc.collect()
    counts = [sys.getrefcount(one) for one in counted]
    given_out = count_given_out()
    tracemalloc.start()
    call_often(5)
    before, _ = tracemalloc.get_traced_memory()
    call_often(300)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 5_000
    assert count_given_out() - given_out < 50_000
    late = [sys.getrefcount(one) for one in counted]
    assert max(abs(one - other) for one, other in zip(counts, late, strict=True)) < 20


@compiled
def takes(n: int) -> int:
    return len(np.empty(n, np.int8))


def test_memory_of_a_large_call_is_kept_for_the_next_one_and_no_more() -> None:
    takes(1)
    before = count_given_out()
    takes(10_000_000)
    once = count_given_out() - before
    for n in (10_000_000, 5_000_000, 10_000_000, 1):
        takes(n)
    assert abs(count_given_out() - before - once) < 100_000
    assert once < 25_000_000
    if before:
        assert once > 9_000_000


@compiled(without_lock=True)
def waited(address: int, most: int) -> int:
    """Wait until another thread has written a word; return 0 if none has."""
    for _ in range(most):
        if load_atomic(address) != 0:
            return load_atomic(address)
    return 0


def test_other_threads_run_during_a_function_without_the_lock() -> None:
    word, found = np.zeros(2, np.int64), []
    address = get_address(word)
    thread = threading.Thread(target=lambda: found.append(waited(address, 2**31)))
    thread.start()
    store_atomic(address, 5)
    thread.join()
    assert found == [5]


@compiled(without_lock=True)
def added_up(address: int, n: int) -> None:
    """Add to a word, while other threads do the same."""
    for _ in range(n):
        store_atomic(address, load_atomic(address) + 1)


def test_a_function_without_the_lock_may_return_nothing() -> None:
    word = np.zeros(1, np.int64)
    assert added_up(get_address(word), 1000) is None
    assert word[0] == 1000


@pytest.mark.parametrize(
    "function",
    [
        "def run(x: NDArray[np.int64]) -> int:\n    return len(x)",
        "def run(n: int) -> float:\n    return 0.5",
        "def run(n: int) -> int:\n    return len(np.zeros(n))",
        "def run(n: int) -> int:\n    if n:\n        raise ValueError('no')\n    return n",
    ],
)
def test_without_the_lock_there_are_no_arrays_and_no_errors(function: str) -> None:
    head = (
        "import numpy as np\nfrom numpy.typing import NDArray\n"
        "from dynbatch.harness.compiler.compiled import compiled\n\n@compiled(without_lock=True)\n"
    )
    with pytest.raises(CompileError, match="errors and arrays need Python's lock"):
        load_generated(f"{head}{function}\n", "run")(1)


def test_a_python_without_its_lock_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @compiled
    def double(x: int) -> int:
        return 2 * x

    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(CompileError, match="set PYTHON_GIL=1"):
        double(1)
    monkeypatch.undo()
    assert double(1) == 2


# --- calls by address ---

LARGEST = 10_000


@compiled
def count_of(n: int) -> int:
    made = np.zeros(n, dtype=np.int64)
    if n > LARGEST:
        raise ValueError("too many")
    return len(made)


@compiled
def nothing_of(n: int) -> None:
    if n > 0:
        raise ValueError("too many")


@compiled
def asks(address: int, n: int) -> int:
    return call_for_number(address, (n,))


def test_error_code_applies_only_to_the_failing_call() -> None:
    assert asks(count_of.address, LARGEST) == LARGEST
    assert asks(count_of.address, LARGEST + 1) == FAILED
    assert asks(count_of.address, LARGEST) == LARGEST
    assert count_of(LARGEST) == LARGEST
    with pytest.raises(ValueError, match="too many"):
        count_of(LARGEST + 1)
    assert asks(count_of.address, LARGEST) == LARGEST


def test_function_unable_to_signal_errors_has_no_address() -> None:
    with pytest.raises(KeyError):
        assert nothing_of.address
    with pytest.raises(ValueError, match="too many"):
        nothing_of(1)


def test_memory_is_given_back() -> None:
    asks(count_of.address, LARGEST)
    before = count_given_out()
    for _ in range(100):
        asks(count_of.address, LARGEST)
    assert count_given_out() - before < 8 * LARGEST


# --- named tuples, whatever Python runs meanwhile: signals, other threads ---


class Inner(NamedTuple):
    values: Words
    n: int


class Outer(NamedTuple):
    first: Inner
    second: Inner
    table: Annotated[Words, 2]


@compiled
def nested(n: int) -> tuple[Outer, int]:
    a, b = np.full(n, n), np.full(n + 1, n + 1)
    table = np.zeros((2, n), np.int64)
    table[1, :] = 7
    return Outer(Inner(a, n), Inner(b, n + 1), table), 3


def check(n: int) -> None:
    found, last = nested(n)
    assert (type(found), type(found.second), last) == (Outer, Inner, 3)
    assert (found.first.n, found.second.n) == (n, n + 1)
    assert found.first.values.tolist() == [n] * n
    assert found.second.values.tolist() == [n + 1] * (n + 1)
    assert found.table.tolist() == [[0] * n, [7] * n]


def test_named_tuples_have_their_classes_and_memory_of_their_own() -> None:
    kept = [nested(n)[0] for n in range(50)]
    for n, one in enumerate(kept):
        assert one.second.values.tolist() == [n + 1] * (n + 1)
    check(4)


def test_threads_do_not_overwrite_each_others_results() -> None:
    def run(n: int) -> None:
        for _ in range(3000):
            check(n)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run, (3, 40)))  # raises their errors
    finally:
        sys.setswitchinterval(before)


def test_a_signal_ends_no_process() -> None:
    program = (
        "import signal\n"
        "from tests.compiler.test_python_calls import check\n"
        "raises = False\n"
        "def handler(*_):\n"
        "    global raises\n"
        "    if raises:\n"
        "        raises = False\n"
        "        raise KeyboardInterrupt\n"
        "check(3)\n"
        "signal.signal(signal.SIGALRM, handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)\n"
        "n_interrupted = 0\n"
        "while n_interrupted < 300:\n"
        "    try:\n"
        "        raises = True\n"
        "        while True:\n"
        "            check(3)\n"
        "    except KeyboardInterrupt:\n"
        "        n_interrupted += 1\n"
        "raises = False\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
    )
    done = end_python("-c", program)
    assert (done.returncode, done.stderr) == (0, "")
