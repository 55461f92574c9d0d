"""Functions known to the compiler: of Python, math, NumPy, and harness.compiler.pointers."""

from __future__ import annotations

import ast
import builtins
import ctypes
import math
import platform
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir

from harness.compiler import arrays, pointers
from harness.compiler.arithmetic import kind_of_number
from harness.compiler.kinds import (
    ADDRESS,
    BOOL,
    BYTE,
    ELEMENTS,
    FLOAT,
    FLOAT32,
    INT,
    INT32,
    UINT,
    WORD,
    Array,
    Element,
    Number,
    Pointer,
    Value,
    kind_of_annotation,
)
from harness.compiler.registry import emitter, method
from harness.errors import CompileError

ARENA = "arena"


def _write_each(register: Any, write: Any, table: dict[Any, Any]) -> None:
    """Register write(value, writer, *arguments) as emitter of each key's calls in a table."""
    for one, own in table.items():
        register(one)(partial(write, own))


def _word(f: Any, value: Any) -> Any:
    return f.arithmetic.cast(value, INT).ir


def _at(f: Any, address: Any, k: Any, kind: Any) -> Any:
    pointer = f.builder.inttoptr(_word(f, address), kind.as_pointer())
    return f.builder.gep(pointer, [_word(f, k)])


# --- numbers ---------------------------------------------------------------------------------


@emitter(builtins.min)
def _min(f: Any, *values: Any) -> Any:
    return _choose(f, ast.Lt, values)


@emitter(builtins.max)
def _max(f: Any, *values: Any) -> Any:
    return _choose(f, ast.Gt, values)


def _choose(f: Any, operator_: type, values: tuple[Any, ...]) -> Any:
    first, *rest = values[0] if len(values) == 1 and isinstance(values[0], tuple) else values
    found = f.arithmetic.convert(first, kind_of_number(first))
    for one in rest:
        found = f.arithmetic.choose(f.arithmetic.compare(operator_, one, found), one, found)
    return found


@emitter(builtins.abs)
def _abs(f: Any, value: Any) -> Any:
    number = f.fixed(value)
    if kind_of_number(number).is_float:
        return _intrinsic(f, "fabs", number)
    if number.kind == UINT:
        return number
    return _choose(f, ast.Gt, (number, f.arithmetic.negate(ast.USub, number)))


def _intrinsic(f: Any, name: str, number: Any) -> Value:
    value = f.fixed(number)
    kind = value.kind
    named = f"llvm.{name}.f{32 if kind == FLOAT32 else 64}"
    return Value(kind, f.builder.call(f.module.declare(named, kind.ir, kind.ir), [value.ir]))


def _of_float(name: str, f: Any, value: Any) -> Any:
    is_float = kind_of_number(value).is_float
    return _intrinsic(f, name, value if is_float else f.arithmetic.cast(value, FLOAT))


_OF_FLOATS = {math.sqrt: "sqrt", math.log: "log", math.exp: "exp", np.floor: "floor"}
_write_each(emitter, _of_float, _OF_FLOATS)


@emitter(math.fmod)
def _fmod(f: Any, a: Any, b: Any) -> Value:
    x, y = (f.arithmetic.cast(one, FLOAT) for one in (a, b))
    return Value(FLOAT, f.builder.frem(x.ir, y.ir))


def _cast(to: tuple[Any, Number, int], f: Any, value: Any) -> Any:
    """Convert a number; results of less than 64 bits are in registers of 64."""
    function, kind, n_bits = to
    kind_of_number(value)
    if not isinstance(value, Value):
        return function(value)
    found = f.arithmetic.cast(value, kind)
    return f.arithmetic.operate(ast.BitAnd, found, 2**n_bits - 1) if n_bits < 64 else found


_KINDS = {
    builtins.bool: BOOL, builtins.int: INT, np.int64: INT, np.int32: INT32, np.uint64: UINT,
    builtins.float: FLOAT, np.float64: FLOAT, np.float32: FLOAT32,
}  # fmt: skip
_BITS = {np.uint8: 8, np.uint16: 16, np.uint32: 32}
_write_each(emitter, _cast, {one: (one, kind, 64) for one, kind in _KINDS.items()})
_write_each(emitter, _cast, {one: (one, INT, n_bits) for one, n_bits in _BITS.items()})


@method("view")
def _view(f: Any, value: Any, kind: Any) -> Value:
    """Reinterpret the bits of a number as another type of the same width."""
    number = {np.float32: FLOAT32, np.int32: INT32}.get(kind)
    if value.kind not in (FLOAT32, INT32) or number is None:
        raise CompileError("only a float32 or an int32 is viewed as the other one")
    return Value(number, f.builder.bitcast(value.ir, number.ir))


# --- arrays ----------------------------------------------------------------------------------


@emitter(builtins.len)
def _len(f: Any, value: Any) -> Any:
    return Value(INT, value.shape[0]) if isinstance(value, Array) else len(value)


def _element(dtype: Any) -> Element:
    return ELEMENTS[np.dtype(dtype).name]


def _flat(f: Any, array: Array) -> Array:
    return Array(array.element, array.pointer, (f.count_elements(array.shape),))


def _sizes(array: Array) -> tuple[Value, ...]:
    return tuple(Value(INT, one) for one in array.shape)


def _shape(f: Any, shape: Any) -> tuple[Any, ...]:
    return tuple(_word(f, one) for one in (shape if isinstance(shape, tuple) else (shape,)))


@emitter(np.empty)
def _empty(f: Any, shape: Any, dtype: Any = np.float64) -> Array:
    element, sizes = _element(dtype), _shape(f, shape)
    n_bytes, is_odd = WORD(element.n_bytes), BOOL.ir(0)
    for one in sizes:
        product = f.builder.umul_with_overflow(n_bytes, one)
        n_bytes = f.builder.extract_value(product, 0)
        is_odd = f.builder.or_(is_odd, f.builder.extract_value(product, 1))
    arena = f.builder.ptrtoint(f.module.word(ARENA, arrays.N_ARENA), WORD)
    n_bytes = f.builder.select(is_odd, WORD(-1), n_bytes)
    address = f.call(arrays.take, Value(INT, arena), Value(INT, n_bytes))
    return Array(element, f.builder.inttoptr(address.ir, element.ir.as_pointer()), sizes)


@emitter(np.zeros)
def _zeros(f: Any, shape: Any, dtype: Any = np.float64) -> Array:
    found = _empty(f, shape, dtype)
    clear = f.module.declare("llvm.memset.p0.i64", ir.VoidType(), ADDRESS, BYTE, WORD, BOOL.ir)
    pointer = f.builder.bitcast(found.pointer, ADDRESS)
    f.builder.call(clear, [pointer, BYTE(0), _n_bytes(f, found), BOOL.ir(0)])
    return found


def _n_bytes(f: Any, array: Array) -> Any:
    return f.builder.mul(f.count_elements(array.shape), WORD(array.element.n_bytes))


@emitter(np.ones)
def _ones(f: Any, shape: Any, dtype: Any = np.float64) -> Array:
    return _full(f, shape, 1, dtype)


@emitter(np.full)
def _full(f: Any, shape: Any, fill_value: Any, dtype: Any = None) -> Array:
    if dtype is None:
        dtype = kind_of_number(fill_value).name
    found = _empty(f, shape, dtype)
    put_all(f, found, fill_value)
    return found


@emitter(np.empty_like)
def _empty_like(f: Any, array: Array) -> Array:
    return _empty(f, _sizes(array), array.element.name)


@emitter(np.zeros_like)
def _zeros_like(f: Any, array: Array) -> Array:
    return _zeros(f, _sizes(array), array.element.name)


def put_all(f: Any, array: Array, value: Any) -> None:
    """Set all elements of an array to a number, or to those of another array of its shape."""
    if not isinstance(value, Array):
        f.call(arrays.fill, _flat(f, array), f.fixed(value))
    elif value.element == array.element:
        kinds = ir.VoidType(), ADDRESS, ADDRESS, WORD, BOOL.ir
        move = f.module.declare("llvm.memmove.p0.p0.i64", *kinds)
        to, source = (f.builder.bitcast(one.pointer, ADDRESS) for one in (array, value))
        f.builder.call(move, [to, source, _n_bytes(f, array), BOOL.ir(0)])
    else:
        f.call(arrays.copy_all, _flat(f, array), _flat(f, value))


@method("copy")
def _copy(f: Any, array: Array) -> Array:
    return _astype(f, array, array.element.name)


@method("astype")
def _astype(f: Any, array: Array, dtype: Any) -> Array:
    found = _empty(f, _sizes(array), dtype)
    put_all(f, found, array)
    return found


@method("ravel")
def _ravel(f: Any, array: Array) -> Array:
    return _flat(f, array)


def _of_all(function: Any, f: Any, array: Array) -> Any:
    return f.call(function, _flat(f, array))


_OF_ARRAYS = {
    "max": arrays.highest, "min": arrays.lowest, "any": arrays.is_any, "sum": arrays.add_up,
}  # fmt: skip
_write_each(method, _of_all, _OF_ARRAYS)


@method("sort")
def _sort(f: Any, array: Array, kind: str = "stable") -> None:
    f.call(arrays.sort, _of_one_dimension(array))


@method("argsort")
@emitter(np.argsort)
def _argsort(f: Any, array: Array, kind: str = "stable") -> Any:
    return f.call(arrays.argsort, _of_one_dimension(array))


def _of_one_dimension(array: Array) -> Array:
    if len(array.shape) != 1:
        raise CompileError("only arrays of one dimension are sorted or concatenated")
    return array


@emitter(np.concatenate)
def _concatenate(f: Any, parts: tuple[Any, ...]) -> Any:
    if len({_of_one_dimension(one).element for one in parts}) != 1:
        raise CompileError("arrays with the same elements are concatenated")
    found = _copy(f, parts[0])
    for one in parts[1:]:
        found = f.call(arrays.concatenate, found, one)
    return found


# --- memory by address -----------------------------------------------------------------------


def _pointer(element: str, f: Any, address: Any) -> Value:
    kind = Pointer(ELEMENTS[element])
    return Value(kind, f.builder.inttoptr(_word(f, address), kind.ir))


_POINTERS = {
    pointers.floats_at: "float32", pointers.doubles_at: "float64",
    pointers.unsigned_ints_at: "uint32", pointers.shorts_at: "uint16",
}  # fmt: skip
_write_each(emitter, _pointer, _POINTERS)


@emitter(pointers.array_at)
def _array_at(f: Any, address: Any, shape: Any, dtype: Any) -> Array:
    element = _element(dtype)
    pointer = f.builder.inttoptr(_word(f, address), element.ir.as_pointer())
    return Array(element, pointer, _shape(f, shape))


@emitter(pointers.arrays_at)
def _arrays_at(f: Any, address: Any, kind: Any) -> Any:
    found = []
    for k, one in enumerate(kind_of_annotation(kind).kinds):
        first = pointers.WORDS_OF_ARRAY * k
        begin, *shape = (
            f.builder.load(_at(f, address, first + i, WORD)) for i in range(1 + one.n_dimensions)
        )
        pointer = f.builder.inttoptr(begin, one.element.ir.as_pointer())
        found.append(Array(one.element, pointer, tuple(shape)))
    return kind(*found)


@emitter(pointers.word)
def _load_word(f: Any, address: Any, k: Any) -> Value:
    return Value(INT, f.builder.load(_at(f, address, k, WORD)))


@emitter(pointers.half_word)
def _load_half_word(f: Any, address: Any, k: Any) -> Value:
    return Value(INT, f.builder.sext(f.builder.load(_at(f, address, k, INT32.ir)), WORD))


@emitter(pointers.put_word)
def _put_word(f: Any, address: Any, k: Any, value: Any) -> None:
    f.builder.store(_word(f, value), _at(f, address, k, WORD))


@emitter(pointers.add_to_word)
def _add_to_word(f: Any, address: Any, k: Any, value: Any) -> None:
    place = _at(f, address, k, WORD)
    f.builder.store(f.builder.add(f.builder.load(place), _word(f, value)), place)


@emitter(pointers.address_of)
def _address_of(f: Any, array: Array) -> Value:
    return Value(INT, f.builder.ptrtoint(array.pointer, WORD))


@emitter(pointers.copy_bytes)
def _copy_bytes(f: Any, out: Any, source: Any, n: Any) -> None:
    copy = f.module.declare("memcpy", ADDRESS, ADDRESS, ADDRESS, WORD)
    to, of = (f.builder.inttoptr(_word(f, one), ADDRESS) for one in (out, source))
    f.builder.call(copy, [to, of, _word(f, n)])


def _call_at(f: Any, address: Any, arguments: tuple[Any, ...], returned: Any) -> Any:
    values = [f.fixed(one).ir for one in arguments]
    kind = ir.FunctionType(returned, [one.type for one in values])
    return f.builder.call(f.builder.inttoptr(_word(f, address), kind.as_pointer()), values)


@emitter(pointers.call)
def _call(f: Any, address: Any, arguments: tuple[Any, ...]) -> None:
    _call_at(f, address, arguments, ir.VoidType())


@emitter(pointers.call_for_number)
def _call_for_number(f: Any, address: Any, arguments: tuple[Any, ...]) -> Value:
    return Value(INT, _call_at(f, address, arguments, WORD))


@emitter(pointers.call_system_library)
def _call_system_library(f: Any, name: str, arguments: tuple[Any, ...]) -> Value:
    if not hasattr(ctypes.CDLL(None), name):
        raise CompileError(f"there is no {name} in the system's library")
    function = f.module.declare(name, WORD, *[WORD] * len(arguments))
    return Value(INT, f.builder.call(function, [_word(f, one) for one in arguments]))


@emitter(pointers.call_system)
def _call_system(f: Any, *numbers: Any) -> None:
    _call_system_library(f, "syscall", numbers)


@emitter(pointers.load_atomic)
def _load_atomic(f: Any, address: Any) -> Value:
    return Value(INT, f.builder.load_atomic(_at(f, address, 0, WORD), "seq_cst", 8))


@emitter(pointers.store_atomic)
def _store_atomic(f: Any, address: Any, value: Any) -> None:
    f.builder.store_atomic(_word(f, value), _at(f, address, 0, WORD), "seq_cst", 8)


@emitter(pointers.add_atomic)
def _add_atomic(f: Any, address: Any, value: Any) -> Value:
    place = _at(f, address, 0, WORD)
    return Value(INT, f.builder.atomic_rmw("add", place, _word(f, value), "seq_cst"))


@emitter(pointers.pause)
def _pause(f: Any) -> None:
    if platform.machine() in ("x86_64", "AMD64"):
        f.builder.call(f.module.declare("llvm.x86.sse2.pause", ir.VoidType()), [])


@emitter(pointers.count_cycles)
def _count_cycles(f: Any) -> Value:
    return Value(INT, f.builder.call(f.module.declare("llvm.readcyclecounter", WORD), []))


@emitter(pointers.room_on_stack)
def _room_on_stack(f: Any) -> Value:
    room = f.place(ir.ArrayType(BYTE, pointers.ROOM_BYTES))
    room.align = 64
    return Value(INT, f.builder.ptrtoint(room, WORD))
