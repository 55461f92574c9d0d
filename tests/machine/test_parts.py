"""Functions that compiled code calls: part of their callers, and not compiled by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.runtime import _nrt_python, rtsys

from harness.machine.caches import NAME
from harness.machine.compiled import compiled, compiled_with, inlined
from harness.machine.machine_code import FOLDER
from harness.machine.parts import Part
from harness.values.places import ROOT

Numbers = np.ndarray


@compiled
def _lowest(values: Numbers, k: int) -> float:
    if k < 0:
        raise ValueError("no place is negative")
    return float(values[k])


@inlined
def _twice(value: float) -> float:
    return 2 * value


@compiled
def _middle(values: Numbers, k: int, add: float = 0.0) -> float:
    return _twice(_lowest(values, k)) + add


@compiled
def _top(values: Numbers, k: int) -> float:
    return _middle(values, k, add=1.0) + _lowest(values, k)


@compiled
def _made(n: int) -> Numbers:
    return np.arange(n)


@compiled
def _sum_of_made(n: int) -> int:
    total = 0
    for k in range(n):
        total += _made(k)[-1:].sum()
    return total


@pytest.fixture(autouse=True)
def _nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def part_of(function: Any) -> Part:
    part = function.get_call_template.__self__
    assert isinstance(part, Part)
    return part


def test_parts_within_parts_compute_what_python_does() -> None:
    values = np.array([3.0, 4.0])
    assert _top(values, 1) == 4 * 2 + 1 + 4
    assert len(part_of(_middle)._found) == len(part_of(_lowest)._found) == 1, "used twice"


def test_a_part_is_no_function_for_python_until_python_calls_it() -> None:
    @compiled
    def part(x: int) -> int:
        return x + 1

    @compiled
    def whole(x: int) -> int:
        return 10 * part(x)

    functions: Any = part, whole
    assert whole(1) == 20
    assert [len(one.signatures) for one in functions] == [0, 1]
    assert part(1) == 2
    assert [len(one.signatures) for one in functions] == [1, 1]


def test_a_parts_error_reaches_python() -> None:
    with pytest.raises(ValueError, match="no place is negative"):
        _top(np.ones(1), -1)


def test_arrays_of_a_part_are_given_back() -> None:
    _sum_of_made(1)
    _nrt_python.memsys_enable_stats()
    try:
        before = rtsys.get_allocation_stats()
        assert _sum_of_made(5) == 0 + 0 + 1 + 2 + 3
        now = rtsys.get_allocation_stats()
    finally:
        _nrt_python.memsys_disable_stats()
    assert now.alloc - before.alloc == now.free - before.free > 0


def test_a_part_may_call_itself() -> None:
    @compiled
    def product(n: int) -> int:
        return 1 if n < 2 else n * product(n - 1)

    @compiled
    def whole(n: int) -> int:
        return product(n) + 1

    assert whole(5) == 121


@pytest.mark.parametrize(("maker", "n_kinds"), [(compiled, 1), (compiled_with(), 3)])
def test_constants_of_callers_compile_anew_only_where_they_may_help(
    maker: Callable[[Any], Any], n_kinds: int
) -> None:
    @maker
    def part(x: int) -> int:
        return x + 1

    @compiled
    def whole(x: int) -> int:
        return part(1) + part(2) + part(x)

    assert whole(3) == 2 + 3 + 4
    assert len(part_of(part)._found) == n_kinds


def test_a_call_that_cannot_be_typed_is_named() -> None:
    @compiled
    def part(x: int) -> int:
        return x.nothing  # type: ignore[attr-defined, no-any-return]

    @compiled
    def whole(x: int) -> int:
        return part(x)

    with pytest.raises(Exception, match="Unknown attribute 'nothing'"):
        whole(1)


PARTS = """
from harness.machine.compiled import compiled

@compiled
def part(x):
    if x < 0:
        raise ValueError("less than nothing")
    return 3 * x

@compiled
def between(x):
    return part(x) + 1
"""
CALLER = """
from harness.machine.compiled import compiled
from copied.parts import between, part

@compiled
def whole(x):
    return between(x) * {factor} + part(x)
"""
RUN = """
from harness.machine.parts import Part
lowered, lower = [], Part._lowered
def watched(self, kinds):
    lowered.append(self._compiler.py_func.__name__)
    return lower(self, kinds)
Part._lowered = watched
from copied.caller import whole
print(whole(2), *lowered)
try:
    whole(-1)
except ValueError as error:
    print(error)
"""


def run(folder: Path) -> str:
    paths = {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        env=os.environ | paths | {"XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_new_caller_finds_the_parts_of_other_processes(tmp_path: Path) -> None:
    package = tmp_path / "copied"
    package.mkdir()
    (package / "parts.py").write_text(PARTS)
    (package / "caller.py").write_text(CALLER.format(factor=10))
    said = "less than nothing\n"
    assert run(tmp_path) == "76 between part\n" + said
    n_kept = len(list((tmp_path / "cache" / NAME / FOLDER).iterdir()))
    assert n_kept == 3
    (package / "caller.py").write_text(CALLER.format(factor=100))
    assert run(tmp_path) == "706\n" + said, "parts are found, their caller is made anew"
    (package / "parts.py").write_text(PARTS.replace("3 * x", "4 * x"))
    assert run(tmp_path) == "908 between part\n" + said, "an edited part is no longer found"
