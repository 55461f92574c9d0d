"""Kinds of values in compiled functions: numbers, memory elements, pointers, arrays, lanes.

A tuple, named or not, is a Python tuple of such values; function arguments are split into them. An
object known at compile time, such as a constant of the module, is "static": it is represented by
the Python object itself.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from dynbatch.harness.errors import CompileError

WORD, BYTE = ir.IntType(64), ir.IntType(8)
ADDRESS = BYTE.as_pointer()


@dataclass(frozen=True, slots=True)
class Number:
    """Kind of a number in a register; of two kinds the one with the higher `rank` is common."""

    name: str
    ir: Any
    rank: int
    is_float: bool = False


BOOL = Number("bool", ir.IntType(1), 0)
INT32 = Number("int32", ir.IntType(32), 1)
INT = Number("int64", WORD, 2)
UINT = Number("uint64", WORD, 3)
FLOAT32 = Number("float32", ir.FloatType(), 4, is_float=True)
FLOAT = Number("float64", ir.DoubleType(), 5, is_float=True)


@dataclass(frozen=True, slots=True)
class Element:
    """Kind of a number in memory, and the kind after loading."""

    name: str
    ir: Any
    number: Number
    is_signed: bool = True

    @property
    def n_bytes(self) -> int:
        """Size in bytes."""
        return np.dtype(self.name).itemsize


ELEMENTS = {
    element.name: element
    for element in (
        Element("bool", BYTE, BOOL),
        *(Element(f"int{bits}", ir.IntType(bits), INT) for bits in (8, 16, 32, 64)),
        *(Element(f"uint{bits}", ir.IntType(bits), INT, False) for bits in (8, 16, 32)),
        Element("uint64", WORD, UINT, False),
        Element("float32", FLOAT32.ir, FLOAT32),
        Element("float64", FLOAT.ir, FLOAT),
    )
}


@dataclass(frozen=True, slots=True)
class Pointer:
    """Pointer to an unknown number of elements of a kind."""

    element: Element

    @property
    def ir(self) -> Any:
        """LLVM type of the pointer."""
        return self.element.ir.as_pointer()


@dataclass(frozen=True, slots=True)
class Lanes:
    """Vector of unsigned integers; see lanes.py."""

    bits: int
    n: int = 16

    @property
    def ir(self) -> Any:
        """LLVM type of the vector."""
        return ir.VectorType(ir.IntType(self.bits), self.n)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """Number, pointer or lanes, in a register."""

    kind: Any
    ir: Any


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """Row-major array in memory."""

    element: Element
    pointer: Any
    shape: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ArrayKind:
    """Kind of an array: its element and number of dimensions."""

    element: Element
    n_dimensions: int


@dataclass(frozen=True, slots=True)
class TupleKind:
    """Kinds of a tuple's elements, and the class of a named tuple."""

    kinds: tuple[Any, ...]
    named: type | None = None


@dataclass(frozen=True, slots=True)
class Static:
    """Python object that is known at compile time."""

    value: Any


NOTHING = Static(None)


def take_apart(value: Any) -> tuple[Any, list[Any]]:
    """Return the kind of a value, and its registers."""
    if isinstance(value, Value):
        return value.kind, [value.ir]
    if isinstance(value, Array):
        return ArrayKind(value.element, len(value.shape)), [value.pointer, *value.shape]
    if isinstance(value, tuple):
        parts = [take_apart(item) for item in value]
        named = type(value) if hasattr(value, "_fields") else None
        kind = TupleKind(tuple(kind for kind, _ in parts), named)
        return kind, [item for _, registers in parts for item in registers]
    return Static(value), []


def put_together(kind: Any, registers: Iterator[Any]) -> Any:
    """Build a value from its kind and registers: the inverse of `take_apart`."""
    if isinstance(kind, ArrayKind):
        pointer = next(registers)
        return Array(
            kind.element, pointer, tuple(next(registers) for _ in range(kind.n_dimensions))
        )
    if isinstance(kind, TupleKind):
        values = [put_together(part, registers) for part in kind.kinds]
        return kind.named(*values) if kind.named is not None else tuple(values)
    if isinstance(kind, Static):
        return kind.value
    return Value(kind, next(registers))


def list_registers(kind: Any) -> list[Any]:
    """Return the LLVM types of a kind's registers."""
    if isinstance(kind, ArrayKind):
        return [kind.element.ir.as_pointer(), *[WORD] * kind.n_dimensions]
    if isinstance(kind, TupleKind):
        return [register for part in kind.kinds for register in list_registers(part)]
    return [] if isinstance(kind, Static) else [kind.ir]


def describe(kind: Any) -> str:
    """Describe a kind in a message."""
    if isinstance(kind, ArrayKind):
        return f"array of {kind.element.name} in {kind.n_dimensions} dimension(s)"
    if isinstance(kind, TupleKind):
        return f"tuple of {len(kind.kinds)}"
    if isinstance(kind, Static):
        return type(kind.value).__name__
    if isinstance(kind, Pointer):
        return f"pointer to {kind.element.name}"
    return str(getattr(kind, "name", kind))


AnyArray = typing.Annotated[NDArray[Any], 0]
_PLAIN: dict[Any, Any] = {
    int: INT, float: FLOAT, bool: BOOL, np.float32: FLOAT32,
    AnyArray: ArrayKind(ELEMENTS["uint8"], 0),
}  # fmt: skip


def parse_annotation(annotation: Any) -> Any:
    """Return the kind that an annotation declares.

    NDArray[np.int32] has one dimension, Annotated[NDArray[np.int32], 2] two. Of an AnyArray only
    the address can be used.

    Raises:
        CompileError: for an annotation without elements or dimensions.
    """
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated and (element := _find_declared_element(inner[0])) is not None:
        return ArrayKind(element, inner[1])
    if (element := _find_declared_element(annotation)) is not None:
        return ArrayKind(element, 1)
    if origin is tuple:
        return TupleKind(tuple(map(parse_annotation, inner)))
    if hasattr(annotation, "_fields"):
        hints = typing.get_type_hints(annotation, include_extras=True)
        return TupleKind(tuple(map(parse_annotation, hints.values())), annotation)
    raise CompileError(
        f"{annotation} is not a supported type; arrays need an element type and dimensions"
    )


def _find_declared_element(annotation: Any) -> Element | None:
    """Return the element kind of a declared array; None for any other annotation."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is np.ndarray:
        inner = typing.get_args(inner[1])
    elif origin is not NDArray:  # the origin of NDArray[...] from NumPy 2.5 on
        return None
    return ELEMENTS.get(getattr(inner[0], "__name__", "")) if inner else None
