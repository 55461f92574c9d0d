"""Unsupported code is rejected with a one-line error that names file and line."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dynbatch.harness.compiler.registry import load_generated
from dynbatch.harness.errors import CompileError

HEAD = """\
import math
import numpy as np
from numpy.typing import NDArray
from typing import Annotated, NamedTuple
from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.errors import CompileError

LIMIT, TABLE = 5, {"a": 1}

@helper
def add(a, b=1):
    return a + b

@helper
def loops(n):
    return loops(n - 1) if n else 0

@helper
def ends(n):
    if n > 0:
        return 1

@helper
def deeper(n):
    return wrong(n)

@helper
def wrong(n):
    return n + None

def surround():
    @helper
    def scale(n):
        return n * factor
    return scale
    factor = 1

unassigned = surround()

@compiled
def run(n: int, x: NDArray[np.float64], y: Annotated[NDArray[np.int32], 2], z: NDArray[np.int64],
        u: NDArray[np.uint64], a: float) -> object:
"""
LANGUAGE = [
    ("n = n / 2", "n changes its type: cannot convert float64 to int64"),
    ("flag = True; flag = 2", "flag changes its type: cannot convert int64 to bool"),
    ("m = 0.5 if n else x", "incompatible types: float and array of float64 in 1"),
    ("m = (1, n) if n else (1, 2, 3)", "incompatible types: tuple of 2 and tuple of 3"),
    ("m = (1, 2); m = (1, n, n)", "m changes its type: expected tuple of 2, got tuple of 3"),
    ("m = x; m = y", "expected array of float64 in 1 dimension(s), got array of int32 in 2"),
    ("a, b, c = 1, n", "expected an array or a tuple of 3"),
    ("print(m); m = 1", "m is used before assignment"),
    ("m += 1; m = 1", "m is used before assignment"),
    ("LIMIT = LIMIT + 1", "LIMIT is used before assignment"),
    ("m = nowhere", "nowhere is not defined"),
    ("m = unassigned(n)", "factor is not assigned in the function around it; called in"),
    ("m = TABLE['a']", "only arrays, pointers and tuples can be indexed"),
    ("m = TABLE.get", "get of dict is not supported"),
    ("n = loops(n)", "loops calls itself; use a loop; called in"),
    ("n = run(n, x, y, z, u, a)", "run calls itself"),
    ("n = ends(n)", "a path through the function has no return"),
    ("n = add(n, n, n)", "TypeError: too many positional arguments"),
    ("n = add(n, c=1)", "unexpected keyword argument 'c'"),
    ("n = add()", "missing a required argument: 'a'"),
    ("n = deeper(n)", "line 30, is not compiled: expected a number, got NoneType; called in"),
    ("n = (1, 2)[n]", "expected a constant as index of a tuple of 2"),
    ("n = (1, 2)[2]", "expected a constant as index of a tuple of 2"),
    ("for k in range(0, n, 0): pass", "the step of a range must not be 0"),
    ("for k in range(x[0]): pass", "cannot convert float64 to int64"),
    ("for k in range(1, 2, 3, n): pass", "expected 1 to 3 arguments of range"),
    ("for k in n: pass", "expected a range, an array or a tuple"),
    ("for k in enumerate(x): pass", "enumerate is not supported"),
    ("while n: n -= 1\n    else: n = 2", "a loop cannot have an else"),
    ("for k in x: n = 1\n    else: n = 2", "a loop cannot have an else"),
    ("raise CompileError('text')", "expected a built-in exception with one constant text"),
    ("raise ValueError", "expected a built-in exception with one constant text"),
    ("raise ExceptionGroup('text')", "expected a built-in exception with one constant text"),
    ("raise UnicodeDecodeError('text')", "expected a built-in exception with one constant text"),
    ("raise ValueError(n)", "expected a built-in exception with one constant text"),
    ("if x: n = 1", "an array has no truth value"),
    ("n = 1 if not y else 2", "an array has no truth value"),
    ("n = bool(x)", "expected a number, got array of float64"),
    ("n.real = 1", "cannot assign to Attribute"),
    ("n.real += 1", "expected a name or an element"),
    ("del n", "Delete is not supported"),
    ("m = [k for k in x]", "ListComp is not supported"),
    ("m = add(*x)", "Starred is not supported"),
    ("if n: return 1", "a path through the function has no return"),
    ("if n: return 1\n    return 0.5", "cannot convert float64 to int64"),
    ("if n: return 1\n    return", "expected int64, got NoneType|expected a number, got NoneType"),
    ("return print", "returns builtin_function_or_method to Python"),
    ("return 'text'", "returns str to Python"),
]
ARRAYS = [
    ("return x + 1", "operators do not support whole arrays; use a loop"),
    ("return x == x", "operators do not support whole arrays; use a loop"),
    ("return -x", "operators do not support whole arrays; use a loop"),
    ("return x in (x, x)", "operators do not support whole arrays; use a loop"),
    ("return y[:, 0]", "columns of an array cannot be sliced"),
    ("return x[::2]", "a slice cannot have a step"),
    ("return x[0, 0]", "got 2 for 1 dimension(s)"),
    ("return x[0.5]", "expected an integer as index"),
    ("return x[a]", "expected an integer as index"),
    ("return x[n > 1]", "expected an integer as index"),
    ("return x[None]", "expected a number, got NoneType"),
    ("return x[:a]", "expected an integer as index"),
    ("return x.T", "T of array of float64 in 1 dimension(s) is not supported"),
    ("return x.mean()", "mean is not supported"),
    ("return np.concatenate((x, z))", "same element type can be concatenated"),
    ("return np.concatenate((y, y))", "only arrays of one dimension can be"),
    ("return np.zeros(n, np.complex64)", "KeyError: 'complex64'"),
    ("return np.zeros()", "TypeError"),
    ("return np.linspace(0, 1)", "linspace is not supported"),
    ("return max(x)", "expected a number, got array of float64"),
    ("return len(n)", "TypeError"),
    ("y[:] = x", "expected an array of as many dimensions"),
    ("y[0] = y", "expected an array of as many dimensions"),
    ("x[0] = x", "expected a number, got array of float64"),
    ("z[0] = 0.5", "expected int64, got a float; use int(...)"),
    ("z[:] = x", "expected int64, got a float; use int(...)"),
    ("z[0] += 0.5", "expected int64, got a float; use int(...)"),
    ("x[1:] += 1", "an operator changes only one element; use a loop"),
    ("x[z] = 1.0", "expected a number, got array of int64"),
    ("x += 1", "operators do not support whole arrays; use a loop"),
    ("u[0] += n", "cannot combine uint64 and int64"),
    ("x[0] = None", "expected a number, got NoneType"),
]
NUMBERS = [
    ("return np.uint64(n) + n", "cannot combine uint64 and int64"),
    ("return np.uint64(n) > -1", "-1 is not a valid uint64"),
    ("return n + 2**63", "9223372036854775808 is not a valid int64"),
    ("return n // 0", "division by 0"),
    ("return n % 0", "division by 0"),
    ("return a // 2", "FloorDiv needs integers"),
    ("return a % 2", "Mod needs integers"),
    ("return a & 1", "BitAnd needs integers"),
    ("return n << a", "LShift needs integers"),
    ("return ~a", "Invert needs integers"),
    ("return n ** 2", "Pow is not supported"),
    ("return n @ n", "MatMult is not supported"),
    ("return n is n", "`is` supports only None"),
    ("return (n, 1) == (1, n)", "cannot compare tuples"),
    ("return n in a", "`in` supports only tuples"),
    ("return n + None", "expected a number, got NoneType"),
    ("return min(None, n)", "expected a number, got NoneType"),
    ("return np.float16(n)", "float16 is not supported"),
    ("return n.view(np.int32)", "only between float32 and int32"),
    ("return 1 // 0", "ZeroDivisionError"),
    ("return n.real", "real of int64 is not supported"),
    ("return round(n)", "round is not supported"),
    ("return f'{n}'", "JoinedStr is not supported"),
]
FUNCTIONS = [
    ("def run(*n: int): return 1", "*arguments"),
    ("def run(n: int): yield n", "yield"),
    ("async def run(n: int): return n", "await"),
    ("def run(n): return n", "unsupported annotation: 'n'"),
    ("def run(n: Words): return n", "annotation: name 'Words' is not defined"),
    ("def run(n: list[int]): return n", "annotation: list[int] is not a supported type"),
    ("def run(n: NDArray): return n", "is not a supported type"),
    ("def run(n: NDArray[np.complex128]): return n", "is not a supported type"),
    ("def run(n: Annotated[int, 2]): return n", "is not a supported type"),
    ("def run(n: int, k: int = 2): return n", "has defaults"),
]


@pytest.mark.parametrize(("body", "error"), [*LANGUAGE, *ARRAYS, *NUMBERS])
def test_unsupported_code_is_refused_with_its_line(body: str, error: str) -> None:
    x = np.zeros(3)
    values = 1, x, np.zeros((2, 2), np.int32), x.astype(np.int64), x.astype(np.uint64), 0.5
    with pytest.raises(CompileError) as caught:
        load_generated(f"{HEAD}    {body}\n", "run")(*values)
    assert any(part in str(caught.value) for part in error.split("|")), str(caught.value)
    if "returns" not in error:
        line = HEAD.count("\n") + 1
        assert re.search(rf", line {line}\b|, line {line + 1}\b", str(caught.value)), caught.value
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("function", "error"), FUNCTIONS)
def test_functions_that_cannot_be_compiled(function: str, error: str) -> None:
    imports = HEAD[: HEAD.index("LIMIT")]
    text = f"from __future__ import annotations\n{imports}@compiled\n{function}\n"
    with pytest.raises(CompileError) as caught:
        load_generated(text, "run")(1)
    assert error in str(caught.value)
