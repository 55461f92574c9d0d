"""Named tuples are returned intact, whatever Python runs meanwhile: signals, other threads."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled
from tests.support.processes import end_python

Longs = NDArray[np.int64]


class Inner(NamedTuple):
    values: Longs
    n: int


class Outer(NamedTuple):
    first: Inner
    second: Inner
    table: Annotated[Longs, 2]


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


def test_they_have_their_classes_and_memory_of_their_own() -> None:
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
        "from tests.compiler.test_named_results import check\n"
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
