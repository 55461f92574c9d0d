"""Known functions of Python, math, NumPy, and dynbatch.harness.compiler.pointers."""

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

from dynbatch.harness.compiler import arrays, pointers
from dynbatch.harness.compiler.arithmetic import find_number_kind
from dynbatch.harness.compiler.kinds import (
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
    parse_annotation,
)
from dynbatch.harness.compiler.registry import register_emitter, register_method
from dynbatch.harness.errors import CompileError

ARENA = "arena"


def _write_each(register: Any, write: Any, table: dict[Any, Any]) -> None:
    """Register write(value, writer, *arguments) as emitter of each key's calls in a table."""
    for key, own in table.items():
        register(key)(partial(write, own))


def _to_word(f: Any, value: Any) -> Any:
    return f.arithmetic.cast(value, INT).ir


def _locate_element(f: Any, address: Any, k: Any, kind: Any) -> Any:
    pointer = f.builder.inttoptr(_to_word(f, address), kind.as_pointer())
    return f.builder.gep(pointer, [_to_word(f, k)])


# --- numbers ---------------------------------------------------------------------------------


@register_emitter(builtins.min)
def _emit_min(f: Any, *values: Any) -> Any:
    return _choose(f, ast.Lt, values)


@register_emitter(builtins.max)
def _emit_max(f: Any, *values: Any) -> Any:
    return _choose(f, ast.Gt, values)


def _choose(f: Any, operator_: type, values: tuple[Any, ...]) -> Any:
    chosen, *rest = values[0] if len(values) == 1 and isinstance(values[0], tuple) else values
    find_number_kind(chosen)
    for value in rest:
        is_better = f.arithmetic.compare(operator_, value, chosen)
        if isinstance(is_better, Value):
            chosen = f.arithmetic.choose(is_better, value, chosen)
        elif is_better:
            chosen = value
    return chosen


@register_emitter(builtins.abs)
def _emit_abs(f: Any, value: Any) -> Any:
    number = f.materialize(value)
    if find_number_kind(number).is_float:
        return _call_intrinsic(f, "fabs", number)
    if number.kind == UINT:
        return number
    return _choose(f, ast.Gt, (number, f.arithmetic.negate(ast.USub, number)))


def _call_intrinsic(f: Any, name: str, number: Any) -> Value:
    value = f.materialize(number)
    kind = value.kind
    named = f"llvm.{name}.f{32 if kind == FLOAT32 else 64}"
    return Value(kind, f.builder.call(f.module.declare(named, kind.ir, kind.ir), [value.ir]))


def _call_float_intrinsic(name: str, f: Any, value: Any) -> Any:
    is_float = find_number_kind(value).is_float
    return _call_intrinsic(f, name, value if is_float else f.arithmetic.cast(value, FLOAT))


_OF_FLOATS = {math.sqrt: "sqrt", math.log: "log", math.exp: "exp", np.floor: "floor"}
_write_each(register_emitter, _call_float_intrinsic, _OF_FLOATS)


@register_emitter(math.fmod)
def _emit_fmod(f: Any, a: Any, b: Any) -> Value:
    x, y = (f.arithmetic.cast(value, FLOAT) for value in (a, b))
    return Value(FLOAT, f.builder.frem(x.ir, y.ir))


def _cast(to: tuple[Any, Number], f: Any, value: Any) -> Any:
    function, kind = to
    find_number_kind(value)
    return f.arithmetic.cast(value, kind) if isinstance(value, Value) else function(value)


_KINDS = {
    builtins.bool: BOOL, builtins.int: INT, np.int64: INT, np.int32: INT32, np.uint64: UINT,
    builtins.float: FLOAT, np.float64: FLOAT, np.float32: FLOAT32,
}  # fmt: skip
_write_each(register_emitter, _cast, {cls: (cls, kind) for cls, kind in _KINDS.items()})


@register_method("view")
def _view(f: Any, value: Any, kind: Any) -> Value:
    """Reinterpret the bits of a number as another type of the same width."""
    number = {np.float32: FLOAT32, np.int32: INT32}.get(kind)
    if value.kind not in (FLOAT32, INT32) or number is None:
        raise CompileError("view() converts only between float32 and int32")
    return Value(number, f.builder.bitcast(value.ir, number.ir))


# --- arrays ----------------------------------------------------------------------------------


@register_emitter(builtins.len)
def _emit_len(f: Any, value: Any) -> Any:
    return Value(INT, value.shape[0]) if isinstance(value, Array) else len(value)


def _find_element(dtype: Any) -> Element:
    return ELEMENTS[np.dtype(dtype).name]


def _flatten(f: Any, array: Array) -> Array:
    return Array(array.element, array.pointer, (f.count_elements(array.shape),))


def _list_sizes(array: Array) -> tuple[Value, ...]:
    return tuple(Value(INT, size) for size in array.shape)


def _to_shape(f: Any, shape: Any) -> tuple[Any, ...]:
    return tuple(_to_word(f, size) for size in (shape if isinstance(shape, tuple) else (shape,)))


@register_emitter(np.empty)
def _emit_empty(f: Any, shape: Any, dtype: Any = np.float64) -> Array:
    element, sizes = _find_element(dtype), _to_shape(f, shape)
    n_bytes, is_odd = WORD(element.n_bytes), BOOL.ir(0)
    for size in sizes:
        product = f.builder.umul_with_overflow(n_bytes, size)
        n_bytes = f.builder.extract_value(product, 0)
        is_odd = f.builder.or_(is_odd, f.builder.extract_value(product, 1))
    arena = f.builder.ptrtoint(f.module.reserve_words(ARENA, arrays.N_ARENA), WORD)
    n_bytes = f.builder.select(is_odd, WORD(-1), n_bytes)
    address = f.call(arrays.allocate, Value(INT, arena), Value(INT, n_bytes))
    return Array(element, f.builder.inttoptr(address.ir, element.ir.as_pointer()), sizes)


@register_emitter(np.zeros)
def _emit_zeros(f: Any, shape: Any, dtype: Any = np.float64) -> Array:
    array = _emit_empty(f, shape, dtype)
    clear = f.module.declare("llvm.memset.p0.i64", ir.VoidType(), ADDRESS, BYTE, WORD, BOOL.ir)
    pointer = f.builder.bitcast(array.pointer, ADDRESS)
    f.builder.call(clear, [pointer, BYTE(0), _count_bytes(f, array), BOOL.ir(0)])
    return array


def _count_bytes(f: Any, array: Array) -> Any:
    return f.builder.mul(f.count_elements(array.shape), WORD(array.element.n_bytes))


@register_emitter(np.ones)
def _emit_ones(f: Any, shape: Any, dtype: Any = np.float64) -> Array:
    return _emit_full(f, shape, 1, dtype)


@register_emitter(np.full)
def _emit_full(f: Any, shape: Any, fill_value: Any, dtype: Any = None) -> Array:
    if dtype is None:
        dtype = find_number_kind(fill_value).name
    array = _emit_empty(f, shape, dtype)
    put_all(f, array, fill_value)
    return array


@register_emitter(np.empty_like)
def _emit_empty_like(f: Any, array: Array) -> Array:
    return _emit_empty(f, _list_sizes(array), array.element.name)


@register_emitter(np.zeros_like)
def _emit_zeros_like(f: Any, array: Array) -> Array:
    return _emit_zeros(f, _list_sizes(array), array.element.name)


def put_all(f: Any, array: Array, value: Any) -> None:
    """Set all elements of an array to a number, or to those of another array of its shape."""
    if not isinstance(value, Array):
        f.call(arrays.fill, _flatten(f, array), f.materialize(value))
    elif value.element == array.element:
        kinds = ir.VoidType(), ADDRESS, ADDRESS, WORD, BOOL.ir
        move = f.module.declare("llvm.memmove.p0.p0.i64", *kinds)
        to, source = (f.builder.bitcast(operand.pointer, ADDRESS) for operand in (array, value))
        f.builder.call(move, [to, source, _count_bytes(f, array), BOOL.ir(0)])
    else:
        f.call(arrays.copy_all, _flatten(f, array), _flatten(f, value))


@register_method("copy")
def _copy(f: Any, array: Array) -> Array:
    return _emit_astype(f, array, array.element.name)


@register_method("astype")
def _emit_astype(f: Any, array: Array, dtype: Any) -> Array:
    converted = _emit_empty(f, _list_sizes(array), dtype)
    put_all(f, converted, array)
    return converted


@register_method("ravel")
def _emit_ravel(f: Any, array: Array) -> Array:
    return _flatten(f, array)


def _reduce_array(function: Any, f: Any, array: Array) -> Any:
    return f.call(function, _flatten(f, array))


_OF_ARRAYS = {
    "max": arrays.find_maximum, "min": arrays.find_minimum, "sum": arrays.add_up,
}  # fmt: skip
_write_each(register_method, _reduce_array, _OF_ARRAYS)


def _check_one_dimension(array: Array) -> Array:
    if len(array.shape) != 1:
        raise CompileError("only arrays of one dimension can be concatenated")
    return array


@register_emitter(np.concatenate)
def _concatenate(f: Any, parts: tuple[Any, ...]) -> Any:
    if len({_check_one_dimension(part).element for part in parts}) != 1:
        raise CompileError("only arrays of the same element type can be concatenated")
    result = _copy(f, parts[0])
    for part in parts[1:]:
        result = f.call(arrays.concatenate, result, part)
    return result


# --- memory by address -----------------------------------------------------------------------


def _make_pointer(element: str, f: Any, address: Any) -> Value:
    kind = Pointer(ELEMENTS[element])
    return Value(kind, f.builder.inttoptr(_to_word(f, address), kind.ir))


_POINTERS = {pointers.floats_at: "float32", pointers.doubles_at: "float64"}
_write_each(register_emitter, _make_pointer, _POINTERS)


@register_emitter(pointers.view_array)
def _view_array(f: Any, address: Any, shape: Any, dtype: Any) -> Array:
    element = _find_element(dtype)
    pointer = f.builder.inttoptr(_to_word(f, address), element.ir.as_pointer())
    return Array(element, pointer, _to_shape(f, shape))


@register_emitter(pointers.view_arrays)
def _view_arrays(f: Any, address: Any, kind: Any) -> Any:
    fields = []
    for k, field in enumerate(parse_annotation(kind).kinds):
        first = pointers.WORDS_OF_ARRAY * k
        begin, *shape = (
            f.builder.load(_locate_element(f, address, first + i, WORD))
            for i in range(1 + field.n_dimensions)
        )
        pointer = f.builder.inttoptr(begin, field.element.ir.as_pointer())
        fields.append(Array(field.element, pointer, tuple(shape)))
    return kind(*fields)


@register_emitter(pointers.read_word)
def _load_word(f: Any, address: Any, k: Any) -> Value:
    return Value(INT, f.builder.load(_locate_element(f, address, k, WORD)))


@register_emitter(pointers.read_half_word)
def _load_half_word(f: Any, address: Any, k: Any) -> Value:
    return Value(
        INT, f.builder.sext(f.builder.load(_locate_element(f, address, k, INT32.ir)), WORD)
    )


@register_emitter(pointers.put_word)
def _put_word(f: Any, address: Any, k: Any, value: Any) -> None:
    f.builder.store(_to_word(f, value), _locate_element(f, address, k, WORD))


@register_emitter(pointers.add_to_word)
def _add_to_word(f: Any, address: Any, k: Any, value: Any) -> None:
    pointer = _locate_element(f, address, k, WORD)
    f.builder.store(f.builder.add(f.builder.load(pointer), _to_word(f, value)), pointer)


@register_emitter(pointers.get_address)
def _find_address(f: Any, array: Array) -> Value:
    return Value(INT, f.builder.ptrtoint(array.pointer, WORD))


@register_emitter(pointers.copy_bytes)
def _copy_bytes(f: Any, out: Any, source: Any, n: Any) -> None:
    copy = f.module.declare("memcpy", ADDRESS, ADDRESS, ADDRESS, WORD)
    to, origin = (f.builder.inttoptr(_to_word(f, address), ADDRESS) for address in (out, source))
    f.builder.call(copy, [to, origin, _to_word(f, n)])


def _call_at(f: Any, address: Any, arguments: tuple[Any, ...], returned: Any) -> Any:
    values = [f.materialize(value).ir for value in arguments]
    kind = ir.FunctionType(returned, [value.type for value in values])
    return f.builder.call(f.builder.inttoptr(_to_word(f, address), kind.as_pointer()), values)


@register_emitter(pointers.call)
def _call(f: Any, address: Any, arguments: tuple[Any, ...]) -> None:
    _call_at(f, address, arguments, ir.VoidType())


@register_emitter(pointers.call_for_number)
def _call_for_number(f: Any, address: Any, arguments: tuple[Any, ...]) -> Value:
    return Value(INT, _call_at(f, address, arguments, WORD))


@register_emitter(pointers.call_system_library)
def _call_system_library(f: Any, name: str, arguments: tuple[Any, ...]) -> Value:
    if not hasattr(ctypes.CDLL(None), name):
        raise CompileError(f"the system's library has no function {name}")
    function = f.module.declare(name, WORD, *[WORD] * len(arguments))
    return Value(INT, f.builder.call(function, [_to_word(f, argument) for argument in arguments]))


@register_emitter(pointers.call_system)
def _call_system(f: Any, *numbers: Any) -> None:
    _call_system_library(f, "syscall", numbers)


@register_emitter(pointers.load_atomic)
def _load_atomic(f: Any, address: Any) -> Value:
    return Value(INT, f.builder.load_atomic(_locate_element(f, address, 0, WORD), "seq_cst", 8))


@register_emitter(pointers.store_atomic)
def _store_atomic(f: Any, address: Any, value: Any) -> None:
    f.builder.store_atomic(_to_word(f, value), _locate_element(f, address, 0, WORD), "seq_cst", 8)


@register_emitter(pointers.add_atomic)
def _add_atomic(f: Any, address: Any, value: Any) -> Value:
    pointer = _locate_element(f, address, 0, WORD)
    return Value(INT, f.builder.atomic_rmw("add", pointer, _to_word(f, value), "seq_cst"))


@register_emitter(pointers.pause)
def _pause(f: Any) -> None:
    if platform.machine() in ("x86_64", "AMD64"):
        f.builder.call(f.module.declare("llvm.x86.sse2.pause", ir.VoidType()), [])


@register_emitter(pointers.count_cycles)
def _count_cycles(f: Any) -> Value:
    return Value(INT, f.builder.call(f.module.declare("llvm.readcyclecounter", WORD), []))


@register_emitter(pointers.allocate_on_stack)
def _allocate_on_stack(f: Any) -> Value:
    room = f.allocate(ir.ArrayType(BYTE, pointers.ROOM_BYTES))
    room.align = 64
    return Value(INT, f.builder.ptrtoint(room, WORD))
