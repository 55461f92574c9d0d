"""Unsupported code is rejected with a one-line error that names file and line."""

from __future__ import annotations

import re

import numpy as np
import pytest

from harness.compiler.registry import load_generated
from harness.errors import CompileError

HEAD = """\
import math
import numpy as np
from numpy.typing import NDArray
from typing import Annotated, NamedTuple
from harness.compiler.compiled import compiled
from harness.compiler.registry import helper
from harness.errors import CompileError

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

@compiled
def run(n: int, x: NDArray[np.float64], y: Annotated[NDArray[np.int32], 2], z: NDArray[np.int64],
        u: NDArray[np.uint64], a: float) -> object:
"""
LANGUAGE = [
    ("n = n / 2", "n changes what it is: float64 is not converted to int64"),
    ("flag = True; flag = 2", "flag changes what it is: int64 is not converted to bool"),
    ("m = 0.5 if n else x", "either float or array of float64 in 1"),
    ("m = (1, n) if n else (1, 2, 3)", "either tuple of 2 or tuple of 3"),
    ("m = (1, 2); m = (1, n, n)", "m changes what it is: tuple of 3 where tuple of 2 is"),
    ("m = x; m = y", "array of int32 in 2 dimension(s) where array of float64 in 1"),
    ("a, b, c = 1, n", "only tuples of 3 and arrays are taken apart"),
    ("print(m); m = 1", "m has no value above this line"),
    ("m += 1; m = 1", "m has no value above this line"),
    ("LIMIT = LIMIT + 1", "LIMIT has no value above this line"),
    ("m = nowhere", "nowhere is not defined"),
    ("m = TABLE['a']", "only arrays, pointers and tuples have parts"),
    ("m = TABLE.get", "get of dict is not known"),
    ("n = loops(n)", "loops calls itself; called in"),
    ("n = run(n, x, y, z, u, a)", "run calls itself"),
    ("n = ends(n)", "a way through the function ends without a return"),
    ("n = add(n, n, n)", "TypeError: too many positional arguments"),
    ("n = add(n, c=1)", "unexpected keyword argument 'c'"),
    ("n = add()", "missing a required argument: 'a'"),
    ("n = deeper(n)", "line 30, is not compiled: NoneType is no number; called in"),
    ("n = (1, 2)[n]", "which of 2 parts is wanted is a constant"),
    ("n = (1, 2)[2]", "which of 2 parts is wanted is a constant"),
    ("for k in range(0, n, 0): pass", "the step of a range is not 0"),
    ("for k in range(x[0]): pass", "float64 is not converted to int64"),
    ("for k in range(1, 2, 3, n): pass", "a range has a begin, an end and a step"),
    ("for k in n: pass", "a loop is over a range, an array or a tuple"),
    ("for k in enumerate(x): pass", "enumerate is not compiled"),
    ("while n: n -= 1\n    else: n = 2", "a loop has no else"),
    ("for k in x: n = 1\n    else: n = 2", "a loop has no else"),
    ("raise CompileError('text')", "only errors of Python's are raised, with one constant text"),
    ("raise ValueError", "only errors of Python's are raised, with one constant text"),
    ("raise ValueError(n)", "only errors of Python's are raised, with one constant text"),
    ("raise add('text')", "only errors of Python's are raised, with one constant text"),
    ("if x: n = 1", "an array is neither true nor false"),
    ("n = 1 if not y else 2", "an array is neither true nor false"),
    ("n = bool(x)", "array of float64 in 1 dimension(s) is no number"),
    ("n.real = 1", "nothing is assigned to a Attribute"),
    ("n.real += 1", "an operator changes a name or an element"),
    ("del n", "no Delete is compiled"),
    ("assert n", "no Assert is compiled"),
    ("with n: pass", "no With is compiled"),
    ("m = [k for k in x]", "no ListComp is compiled"),
    ("m = add(*x)", "no Starred is compiled"),
    ("if n: return 1", "a way through the function ends without a return"),
    ("if n: return 1\n    return 0.5", "float64 is not converted to int64"),
    ("if n: return 1\n    return", "NoneType where int64 is expected|NoneType is no number"),
    ("return print", "returns builtin_function_or_method to Python"),
    ("return 'text'", "returns str to Python"),
]
ARRAYS = [
    ("return x + 1", "no operator takes whole arrays; write a loop"),
    ("return x == x", "no operator takes whole arrays; write a loop"),
    ("return -x", "no operator takes whole arrays; write a loop"),
    ("return x in (x, x)", "no operator takes whole arrays; write a loop"),
    ("return y[:, 0]", "columns of an array are taken one by one"),
    ("return y[0:1, 0]", "columns of an array are taken one by one"),
    ("return x[::2]", "a slice has no step"),
    ("return x[0, 0]", "dimension(s) has one index each"),
    ("return x[0.5]", "an index is a whole number"),
    ("return x[a]", "an index is a whole number"),
    ("return x[n > 1]", "an index is a whole number"),
    ("return x[None]", "NoneType is no number"),
    ("return x[:a]", "an index is a whole number"),
    ("return x.T", "T of array of float64 in 1 dimension(s) is not known"),
    ("return x.mean()", "mean is not compiled"),
    ("return y.sort()", "only arrays of one dimension are sorted"),
    ("return np.argsort(y)", "only arrays of one dimension are sorted"),
    ("return np.concatenate((x, z))", "arrays with the same elements are concatenated"),
    ("return np.concatenate((y, y))", "only arrays of one dimension are"),
    ("return np.zeros(n, np.complex64)", "KeyError: 'complex64'"),
    ("return np.zeros()", "TypeError"),
    ("return np.linspace(0, 1)", "linspace is not compiled"),
    ("return max(x)", "array of float64 in 1 dimension(s) is no number"),
    ("return len(n)", "TypeError"),
    ("y[:] = x", "an array is copied to one of as many dimensions"),
    ("y[0] = y", "an array is copied to one of as many dimensions"),
    ("x[0] = x", "array of float64 in 1 dimension(s) is no number"),
    ("z[0] = 0.5", "a float is no int64; write int(...)"),
    ("z[:] = x", "a float is no int64; write int(...)"),
    ("z[0] += 0.5", "a float is no int64; write int(...)"),
    ("x[1:] += 1", "an operator changes one element at a time; write a loop"),
    ("x[z] = 1.0", "array of int64 in 1 dimension(s) is no number"),
    ("x.size = 3", "nothing is assigned to a Attribute"),
    ("x += 1", "no operator takes whole arrays; write a loop"),
    ("u[0] += n", "uint64 and int64 are not combined"),
    ("x[0] = None", "NoneType is no number"),
]
NUMBERS = [
    ("return np.uint64(n) + n", "uint64 and int64 are not combined"),
    ("return np.uint64(n) > -1", "-1 is no uint64"),
    ("return n + 2**63", "9223372036854775808 is no int64"),
    ("return n // 0", "nothing is divided by 0"),
    ("return n % 0", "nothing is divided by 0"),
    ("return a // 2", "FloorDiv is of whole numbers"),
    ("return a % 2", "Mod is of whole numbers"),
    ("return a & 1", "BitAnd is of whole numbers"),
    ("return n << a", "LShift is of whole numbers"),
    ("return ~a", "Invert is of whole numbers"),
    ("return n ** 0", "powers of 1, 2 and 3"),
    ("return 2 ** n", "powers of 1, 2 and 3"),
    ("return n @ n", "no MatMult is compiled"),
    ("return n is n", "only None is compared by `is`"),
    ("return (n, 1) == (1, n)", "tuples are compared part by part"),
    ("return n in a", "looks into tuples alone"),
    ("return n + None", "NoneType is no number"),
    ("return n + 'text'", "str is no number"),
    ("return min(None, n)", "NoneType is no number"),
    ("return np.float16(n)", "float16 is not compiled"),
    ("return n.view(np.int32)", "only a float32 or an int32 is viewed"),
    ("return 1 // 0", "ZeroDivisionError"),
    ("return n.real", "real of int64 is not known"),
    ("return round(n)", "round is not compiled"),
    ("return math.floor(a)", "floor is not compiled"),
    ("return f'{n}'", "no JoinedStr is compiled"),
    ("return [n]", "no List is compiled"),
    ("return lambda: n", "no Lambda is compiled"),
]
FUNCTIONS = [
    ("def run(*n: int): return 1", "*arguments"),
    ("def run(n: int): yield n", "yield"),
    ("async def run(n: int): return n", "wait"),
    ("def run(n): return n", "declare 'n'"),
    ("def run(n: Words): return n", "declare name 'Words' is not defined"),
    ("def run(n: list[int]): return n", "declare list[int] does not say"),
    ("def run(n: NDArray): return n", "does not say which elements"),
    ("def run(n: NDArray[np.complex128]): return n", "does not say which elements"),
    ("def run(n: Annotated[int, 2]): return n", "does not say which elements"),
    ("def run(n: None): return n", "does not say which elements"),
]


@pytest.mark.parametrize(("body", "error"), [*LANGUAGE, *ARRAYS, *NUMBERS])
def test_what_has_no_meaning_is_refused_by_its_line(body: str, error: str) -> None:
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
