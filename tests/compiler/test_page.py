"""docs/compiler.md: its example runs, and everything that it names exists."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dynbatch.harness.compiler import lanes, pointers
from dynbatch.harness.compiler.compiled import compiled  # noqa: F401 - registers known functions
from dynbatch.harness.compiler.registry import EMITTERS, METHODS, load_generated
from dynbatch.harness.values.paths import ROOT
from tests.support.both_ways import run_both

PAGE = (ROOT / "docs" / "compiler.md").read_text(encoding="utf-8")


def test_its_example_runs() -> None:
    (text,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    runs_of: Any = load_generated(text, "runs_of")

    @given(st.lists(st.integers(0, 2)))
    def check(numbers: list[int]) -> None:
        found = run_both(runs_of, np.array(numbers, np.int32))
        assert len(found.starts) == len([*itertools.groupby(numbers)])

    runs_of(np.zeros(0, np.int32))
    check()


def test_it_names_the_functions_and_methods_that_the_compiler_knows() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    known = {one for one in EMITTERS if one.__module__ not in (pointers.__name__, lanes.__name__)}
    functions = {f"{module_of(one)}{one.__name__}" for one in known}
    methods = {f".{name}()" for name in METHODS}
    assert functions | methods | {"range", "x[indices]"} <= named
    assert all("[" in one for one in named - functions - methods - {"range"})


def module_of(function: Any) -> str:
    module = getattr(function, "__module__", None) or "numpy"
    return {"builtins": "", "math": "math.", "numpy": "np."}[module]
