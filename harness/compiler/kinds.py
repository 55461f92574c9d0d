"""What values of compiled functions are: numbers, elements of memory, pointers, arrays, lanes.

A tuple, named or not, is a Python tuple of such values: it is taken apart where functions begin.
Whatever is known when a function is compiled, such as a constant of its module, is no value at all
but the Python object itself ("static").
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from harness.errors import CompileError

WORD, BYTE = ir.IntType(64), ir.IntType(8)
ADDRESS = BYTE.as_pointer()


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a register; the order of `rank` is that in which two kinds become one."""

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
    """A number in memory, and what it is once it is loaded."""

    name: str
    ir: Any
    number: Number
    is_signed: bool = True

    @property
    def n_bytes(self) -> int:
        """Its size."""
        return np.dtype(self.name).itemsize


ELEMENTS = {
    one.name: one
    for one in (
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
    """Where elements of a kind are, how many nobody knows."""

    element: Element

    @property
    def ir(self) -> Any:
        """LLVM's type of it."""
        return self.element.ir.as_pointer()


@dataclass(frozen=True, slots=True)
class Lanes:
    """Whole numbers without a sign side by side; see lanes.py."""

    bits: int
    n: int = 16

    @property
    def ir(self) -> Any:
        """LLVM's type of it."""
        return ir.VectorType(ir.IntType(self.bits), self.n)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A number, a pointer or lanes, in a register."""

    kind: Any
    ir: Any


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """Elements one after the other in memory, the last index counting fastest."""

    element: Element
    pointer: Any
    shape: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ArrayKind:
    """What there is of an array before it has an address."""

    element: Element
    n_dimensions: int


@dataclass(frozen=True, slots=True)
class TupleKind:
    """A tuple's kinds, and the class that a named one is of."""

    kinds: tuple[Any, ...]
    named: type | None = None


@dataclass(frozen=True, slots=True)
class Static:
    """A Python object that is known when a function is compiled."""

    value: Any


NOTHING = Static(None)


def take_apart(value: Any) -> tuple[Any, list[Any]]:
    """Return the kind of a value, and what of it is in registers."""
    if isinstance(value, Value):
        return value.kind, [value.ir]
    if isinstance(value, Array):
        return ArrayKind(value.element, len(value.shape)), [value.pointer, *value.shape]
    if isinstance(value, tuple):
        parts = [take_apart(one) for one in value]
        named = type(value) if hasattr(value, "_fields") else None
        kind = TupleKind(tuple(kind for kind, _ in parts), named)
        return kind, [one for _, registers in parts for one in registers]
    return Static(value), []


def put_together(kind: Any, registers: Iterator[Any]) -> Any:
    """Make a value of its kind and registers: the reverse of `take_apart`."""
    if isinstance(kind, ArrayKind):
        pointer = next(registers)
        return Array(
            kind.element, pointer, tuple(next(registers) for _ in range(kind.n_dimensions))
        )
    if isinstance(kind, TupleKind):
        values = [put_together(one, registers) for one in kind.kinds]
        return kind.named(*values) if kind.named is not None else tuple(values)
    if isinstance(kind, Static):
        return kind.value
    return Value(kind, next(registers))


def list_registers(kind: Any) -> list[Any]:
    """Return LLVM's types of what a value of a kind has in registers."""
    if isinstance(kind, ArrayKind):
        return [kind.element.ir.as_pointer(), *[WORD] * kind.n_dimensions]
    if isinstance(kind, TupleKind):
        return [one for part in kind.kinds for one in list_registers(part)]
    return [] if isinstance(kind, Static) else [kind.ir]


def describe(kind: Any) -> str:
    """Name a kind as an engineer would."""
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


def kind_of_annotation(annotation: Any) -> Any:
    """Return the kind that an annotation declares.

    NDArray[np.int32] has one dimension; Annotated[NDArray[np.int32], 2] two. An AnyArray is one of
    which no more than the address is of use.

    Raises CompileError for one that says too little.
    """
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated and (element := _element_of(inner[0])) is not None:
        return ArrayKind(element, inner[1])
    if (element := _element_of(annotation)) is not None:
        return ArrayKind(element, 1)
    if origin is tuple:
        return TupleKind(tuple(map(kind_of_annotation, inner)))
    if hasattr(annotation, "_fields"):
        hints = typing.get_type_hints(annotation, include_extras=True)
        return TupleKind(tuple(map(kind_of_annotation, hints.values())), annotation)
    raise CompileError(
        f"{annotation} does not say which elements and how many dimensions there are"
    )


def _element_of(annotation: Any) -> Element | None:
    """Return what an array has that an annotation declares; None where that is no array."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is np.ndarray:
        inner = typing.get_args(inner[1])
    elif origin is not NDArray:  # what NDArray[...] is of from NumPy 2.5 on
        return None
    return ELEMENTS.get(getattr(inner[0], "__name__", "")) if inner else None
