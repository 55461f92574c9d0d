"""What an expression of a program is while it is translated: text for later, or known now."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from harness.errors import BenchError

NONE = -(2**62)  # stands for None wherever a number might be
# maybe: an integer, or None; narrow: of an array, of 32 bits, which wraps around in Python.
NumberKind = Literal["int", "float", "bool", "maybe", "narrow"]


class NotTranslated(BenchError):  # noqa: N818 - Python runs it instead
    """A program uses what translation does not know."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number, or None; text: an expression of slots and constants, which changes nothing."""

    kind: NumberKind
    text: str

    @property
    def is_literal(self) -> bool:
        """Whether it is known now."""
        return self.text.lstrip("-").replace(".", "", 1).isdigit()


@dataclass(frozen=True, slots=True)
class ListAt:
    """A list of integers; text: of its number in the table of lists."""

    text: str


@dataclass(frozen=True, slots=True)
class ArrayAt:
    """A one-dimensional array of integers, which nothing changes; text as of a list."""

    text: str


@dataclass(frozen=True, slots=True)
class DictAt:
    """A dict from integers to integers: a list of keys and values by turns, the newest last."""

    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """The integers from start on and below stop; texts."""

    start: str
    stop: str


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Zipped:
    """What a loop goes through side by side."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Inline:
    """A lambda, and what its names mean where it stands. source: the function that it is in."""

    node: ast.Lambda
    names: Mapping[str, Any]
    source: Any


@dataclass(frozen=True, slots=True)
class BlockNamed:
    """A block of the model."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Any object of Python's: the model, a function, a constant that is no number."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@dataclass(frozen=True, slots=True)
class TheWriter:
    """`p`."""


@dataclass(frozen=True, slots=True)
class TheInstance:
    """The instance that the program is run for. kind: its class."""

    kind: type


Value = (
    Number | ListAt | ArrayAt | DictAt | Span | Several | Zipped | Inline | BlockNamed | Known
    | TheWriter | TheInstance
)  # fmt: skip
TRUE, FALSE = Number("bool", "True"), Number("bool", "False")
NOTHING = Number("maybe", str(NONE))
KEPT_LISTS = ListAt | ArrayAt | DictAt


def literal(value: float) -> Number:
    """A number that is known now."""
    if isinstance(value, bool):
        return TRUE if value else FALSE
    if isinstance(value, int):
        return Number("int", repr(int(value)))
    text = repr(float(value)).replace("inf", "1e999").replace("nan", "(1e999 - 1e999)")
    return Number("float", text)


def kind_of(value: Value) -> str:
    """How a parameter that is given this is kept, in words that tell entries apart."""
    if isinstance(value, Number):
        return "int" if value.kind == "bool" else value.kind
    if isinstance(value, KEPT_LISTS):
        return type(value).__name__
    return repr(value)
