"""Calls of compiled functions from Python, by functions of its C interface, written as IR.

Such a function reads arrays in place (NumPy's C interface, PyArrayObject_fields), checks that each
matches its declaration, and converts results to numbers, tuples and new arrays. A call of ctypes
would take microseconds, as long as the scheduling of a small mini-batch.
"""

from __future__ import annotations

import ctypes
import sys
import typing
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from dynbatch.harness.compiler import arrays
from dynbatch.harness.compiler.builtins import ARENA
from dynbatch.harness.compiler.functions import ERROR, IRModule, Translated
from dynbatch.harness.compiler.kinds import (
    ADDRESS,
    BOOL,
    BYTE,
    ELEMENTS,
    FLOAT,
    FLOAT32,
    INT,
    NOTHING,
    UINT,
    WORD,
    Array,
    ArrayKind,
    Number,
    TupleKind,
    Value,
    describe,
    list_registers,
    put_together,
    take_apart,
)
from dynbatch.harness.errors import CompileError

INT32 = ir.IntType(32)
# Indices of the objects that a function of Python's C interface gets as `self`.
_NDARRAY, _EMPTY, _NEW_TUPLE, _NONE, _DTYPES = range(5)
_NAMED = _DTYPES + len(ELEMENTS)
_HEAD = object.__basicsize__  # size of an object's header, before the array's own fields
_DATA, _N_DIMENSIONS, _DIMENSIONS, _DTYPE, _FLAGS = (_HEAD + k for k in (0, 8, 16, 40, 48))
_BYTE_ORDER, _TYPE_NUMBER = _HEAD + 10, _HEAD + 12
_IN_ORDER = 0x1 | 0x100  # contiguous and row-major, and aligned
_SWAPPED = ord(">" if sys.byteorder == "little" else "<")
_FASTCALL = 0x0080


class Wrapper:
    """Writer of PyObject *name(self, arguments, n), through which Python calls a function."""

    def __init__(self, module: IRModule, name: str, names: Sequence[str]) -> None:
        self.module, self.name, self.names = module, name, names
        kind = ir.FunctionType(ADDRESS, [ADDRESS, ADDRESS.as_pointer(), WORD])
        self.ir = ir.Function(module.ir, kind, f"{name}.python")
        self.own, self.arguments, self.n = self.ir.args
        self.builder = ir.IRBuilder(self.ir.append_basic_block())
        self.named: list[type] = []  # classes of tuples in its result
        self._arrays: Iterator[Any] = iter(())  # created for the result, in order

    def write(self, kinds: Sequence[Any], translated: Translated, release: Any) -> None:
        """Write the function.

        Args:
            release: the function that frees an arena's memory, or None.
        """
        n = len(kinds)
        message = f"{self.name}: expected {n} arguments: {', '.join(self.names)}"
        self._refuse_unless(self._is(self.n, WORD(n)), message)
        registers: list[Any] = []
        for k, kind in enumerate(kinds):
            argument = self.builder.load(self.builder.gep(self.arguments, [WORD(k)]))
            registers += self._unbox(argument, kind, self.names[k])
        result = self.builder.call(translated.function, registers)
        if translated.raises:
            self._raise_errors(release)
        kind = translated.returned or NOTHING
        parts = [self.builder.extract_value(result, k) for k in range(len(list_registers(kind)))]
        value = put_together(kind, iter(parts))
        # Arrays first: no Python code may run before the arena's memory is freed.
        self._arrays = iter(self._box_arrays(value, release))
        self._release(release)
        self.builder.ret(self._box(value))

    def _release(self, release: Any) -> None:
        if release is not None:
            arena = self.module.reserve_words(ARENA, arrays.N_ARENA)
            self.builder.call(release, [self.builder.ptrtoint(arena, WORD)])

    def _is(self, a: Any, b: Any) -> Any:
        return self.builder.icmp_signed("==", a, b)

    def _call(self, name: str, *arguments: Any, returned: Any = ADDRESS) -> Any:
        function = self.module.declare(name, returned, *[argument.type for argument in arguments])
        return self.builder.call(function, arguments)

    def _load_object(self, k: int) -> Any:
        return self._call("PyTuple_GetItem", self.own, WORD(k))

    def _drop(self, object_: Any) -> None:
        self._call("Py_DecRef", object_, returned=ir.VoidType())

    def _make_text(self, text: str) -> Any:
        content = bytearray(text.encode() + b"\0")
        kind = ir.ArrayType(BYTE, len(content))
        variable = ir.GlobalVariable(self.module.ir, kind, self.module.ir.get_unique_name("text"))
        variable.initializer, variable.linkage = ir.Constant(kind, content), "internal"
        return variable.bitcast(ADDRESS)

    def _load_error(self, name: str) -> Any:
        if name not in self.module.ir.globals:
            ir.GlobalVariable(self.module.ir, ADDRESS, name)
        return self.builder.load(self.module.ir.globals[name])

    def _fail(self, name: str, text: str) -> None:
        """Raise a Python error and return NULL."""
        error, message = self._load_error(f"PyExc_{name}"), self._make_text(text)
        self._call("PyErr_SetString", error, message, returned=ir.VoidType())
        self.builder.ret(ADDRESS(None))

    def _refuse_unless(self, condition: Any, text: str) -> None:
        with self.builder.if_then(self.builder.not_(condition), likely=False):
            self._fail("TypeError", text)

    def _return_if(self, condition: Any) -> None:
        """Return if a function of Python has raised an error."""
        with self.builder.if_then(condition, likely=False):
            self.builder.ret(ADDRESS(None))

    def _raise_errors(self, release: Any) -> None:
        """Raise the error that the function has recorded, if any."""
        pointer = self.module.reserve_words(ERROR)
        error = self.builder.load(pointer)
        is_raised = self.builder.not_(self._is(error, WORD(0)))
        with self.builder.if_then(is_raised, likely=False):
            self.builder.store(WORD(0), pointer)
            self._release(release)
            for number, (kind, text) in enumerate(self.module.errors, 1):
                with self.builder.if_then(self._is(error, WORD(number))):
                    self._fail(kind.__name__, text)
            self.builder.unreachable()

    def _load_field(self, object_: Any, offset: int, kind: Any) -> Any:
        pointer = self.builder.gep(object_, [WORD(offset)])
        return self.builder.load(self.builder.bitcast(pointer, kind.as_pointer()))

    def _unbox(self, object_: Any, kind: Any, name: str) -> list[Any]:
        """Return the registers of an argument; reject one that does not match its declaration."""
        if isinstance(kind, ArrayKind):
            return self._unbox_array(object_, kind, name)
        if isinstance(kind, TupleKind):
            n = self._call("PyTuple_Size", object_, returned=WORD)
            message = f"{self.name}: expected a {describe(kind)} as {name}"
            self._refuse_unless(self._is(n, WORD(len(kind.kinds))), message)
            parts = [
                self._call("PyTuple_GetItem", object_, WORD(k)) for k in range(len(kind.kinds))
            ]
            boxed = zip(parts, kind.kinds, strict=True)
            return [
                register
                for k, (item, part) in enumerate(boxed)
                for register in self._unbox(item, part, f"{name}[{k}]")
            ]
        if kind in (FLOAT, FLOAT32):
            number = self._call("PyFloat_AsDouble", object_, returned=FLOAT.ir)
            is_odd = self.builder.fcmp_ordered("==", number, FLOAT.ir(-1.0))
            self._return_if_raised(is_odd)
            return [number if kind == FLOAT else self.builder.fptrunc(number, FLOAT32.ir)]
        if kind == BOOL:
            number = self._call("PyObject_IsTrue", object_, returned=INT32)
            self._return_if_raised(self._is(number, INT32(-1)))
            return [self.builder.icmp_signed("!=", number, INT32(0))]
        number = self._call("PyLong_AsLongLong", object_, returned=WORD)
        self._return_if_raised(self._is(number, WORD(-1)))
        return [number]

    def _is_null(self, object_: Any) -> Any:
        return self._is(self.builder.ptrtoint(object_, WORD), WORD(0))

    def _return_if_raised(self, is_odd: Any) -> None:
        """Write a return for an error of Python, for which only odd results are checked."""
        with self.builder.if_then(is_odd, likely=False):
            is_fine = self._is_null(self._call("PyErr_Occurred"))
            self._return_if(self.builder.not_(is_fine))

    def _unbox_array(self, object_: Any, kind: ArrayKind, name: str) -> list[Any]:
        message = f"{self.name}: expected a contiguous {describe(kind)} as {name}"
        own = self.builder.ptrtoint(self._load_field(object_, 8, ADDRESS), WORD)
        is_array = self._is(own, self.builder.ptrtoint(self._load_object(_NDARRAY), WORD))
        self._refuse_unless(is_array, message)
        data = self._load_field(object_, _DATA, kind.element.ir.as_pointer())
        if kind.n_dimensions == 0:
            return [data]
        dtype = self._load_field(object_, _DTYPE, ADDRESS)
        own_number = self._load_field(dtype, _TYPE_NUMBER, INT32)
        is_right: Any = BOOL.ir(0)
        for number in _list_type_numbers(kind.element.name):
            is_right = self.builder.or_(is_right, self._is(own_number, INT32(number)))
        flags = self.builder.and_(self._load_field(object_, _FLAGS, INT32), INT32(_IN_ORDER))
        for is_so in (
            self._is(self._load_field(object_, _N_DIMENSIONS, INT32), INT32(kind.n_dimensions)),
            self._is(flags, INT32(_IN_ORDER)),
            self.builder.not_(self._is(self._load_field(dtype, _BYTE_ORDER, BYTE), BYTE(_SWAPPED))),
        ):
            is_right = self.builder.and_(is_right, is_so)
        self._refuse_unless(is_right, message)
        sizes = self._load_field(object_, _DIMENSIONS, WORD.as_pointer())
        shape = [
            self.builder.load(self.builder.gep(sizes, [WORD(k)])) for k in range(kind.n_dimensions)
        ]
        return [data, *shape]

    def _box(self, value: Any) -> Any:
        """Return a new Python object."""
        if isinstance(value, Array):
            return next(self._arrays)
        if isinstance(value, tuple):
            return self._box_tuple(value)
        if value is None:
            return self._take_reference(_NONE)
        number = self._box_number(value)
        self._return_if(self._is_null(number))
        return number

    def _box_number(self, value: Any) -> Any:
        if not isinstance(value, Value) or not isinstance(value.kind, Number):
            kind = describe(take_apart(value)[0])
            raise CompileError(
                f"{self.name} returns {kind} to Python; expected numbers, arrays or tuples"
            )
        if value.kind == BOOL:
            number = self.builder.zext(value.ir, WORD)
            return self._call("PyBool_FromLong", number)
        if value.kind.is_float:
            number = value.ir if value.kind == FLOAT else self.builder.fpext(value.ir, FLOAT.ir)
            return self._call("PyFloat_FromDouble", number)
        if value.kind == UINT:
            return self._call("PyLong_FromUnsignedLongLong", value.ir)
        number = value.ir if value.kind == INT else self.builder.sext(value.ir, WORD)
        return self._call("PyLong_FromLongLong", number)

    def _box_tuple(self, value: tuple[Any, ...]) -> Any:
        """Return a new tuple, of its class if it is named."""
        named = _NAMED + len(self.named)
        self.named += [type(value)] if hasattr(value, "_fields") else []
        result = self._make_tuple([self._box(item) for item in value])
        if not hasattr(value, "_fields"):
            return result
        # As a class of named tuples does; in Python code a signal could interrupt it.
        arguments = self._make_tuple([self._take_reference(named), result])
        called = self._call(
            "PyObject_Call", self._load_object(_NEW_TUPLE), arguments, ADDRESS(None)
        )
        self._drop(arguments)
        self._return_if(self._is_null(called))
        return called

    def _make_tuple(self, objects: Sequence[Any]) -> Any:
        """Return a new tuple, which takes ownership of the objects."""
        result = self._call("PyTuple_New", WORD(len(objects)))
        self._return_if(self._is_null(result))
        for k, item in enumerate(objects):
            self._call("PyTuple_SetItem", result, WORD(k), item, returned=INT32)
        return result

    def _take_reference(self, k: int) -> Any:
        result = self._load_object(k)
        self._call("Py_IncRef", result, returned=ir.VoidType())
        return result

    def _box_arrays(self, value: Any, release: Any) -> list[Any]:
        """Return new arrays for all in a value; if one cannot be created, free the others."""
        made: list[Any] = []
        for array in _list_arrays(value):
            boxed = self._box_array(array)
            failed, fine = self.ir.append_basic_block(), self.ir.append_basic_block()
            self.builder.cbranch(self._is_null(boxed), failed, fine)
            self.builder.position_at_end(failed)
            for before in made:
                self._drop(before)
            self._release(release)
            self.builder.ret(ADDRESS(None))
            self.builder.position_at_end(fine)
            self._copy_elements(array, boxed)
            made.append(boxed)
        return made

    def _box_array(self, value: Array) -> Any:
        """Return a new array with the size of a temporary one, or NULL."""
        shape = self._box(tuple(Value(INT, size) for size in value.shape))
        dtype = self._take_reference(_DTYPES + list(ELEMENTS).index(value.element.name))
        arguments = self._make_tuple([shape, dtype])
        result = self._call("PyObject_Call", self._load_object(_EMPTY), arguments, ADDRESS(None))
        self._drop(arguments)
        return result

    def _copy_elements(self, value: Array, target: Any) -> None:
        n_bytes: Any = WORD(value.element.n_bytes)
        for size in value.shape:
            n_bytes = self.builder.mul(n_bytes, size)
        source = self.builder.bitcast(value.pointer, ADDRESS)
        self._call("memcpy", self._load_field(target, _DATA, ADDRESS), source, n_bytes)


def _list_arrays(value: Any) -> list[Array]:
    if isinstance(value, tuple):
        return [array for item in value for array in _list_arrays(item)]
    return [value] if isinstance(value, Array) else []


def list_tuple_classes(annotation: Any) -> list[type]:
    """Return the classes of named tuples in an annotation, in the order of its text."""
    if hasattr(annotation, "_fields"):
        own, inner = [annotation], tuple(typing.get_type_hints(annotation).values())
    else:
        own, inner = [], typing.get_args(annotation)
    return own + [named for argument in inner for named in list_tuple_classes(argument)]


def _list_type_numbers(name: str) -> list[int]:
    """Return NumPy's numbers of all types that are equal in memory, such as long and long long."""
    same = {"int64": "q", "uint64": "Q", "int32": "i", "uint32": "I"}
    return sorted({np.dtype(name).num, np.dtype(same.get(name, name)).num})


class _Definition(ctypes.Structure):
    """PyMethodDef of Python's C interface."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
        ("text", ctypes.c_char_p),
    ]  # fmt: skip


def make_callable(name: str, address: int, named: Sequence[type]) -> tuple[Any, Any]:
    """Return a Python function for one written by `Wrapper`, and objects that must live as long.

    Args:
        named: classes of the named tuples in its result, in the order of their text.

    Raises:
        CompileError: in a Python without global lock, as threads would share the memory of arrays.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise CompileError("this Python runs without a global lock; set PYTHON_GIL=1")
    dtypes = [np.dtype(element) for element in ELEMENTS]
    own = (np.ndarray, np.empty, tuple.__new__, None, *dtypes, *named)
    definition = _Definition(name.encode(), address, _FASTCALL, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p],
    )
    return make(ctypes.addressof(definition), own, None), (definition, own)
