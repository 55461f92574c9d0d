"""What an expression of a program is while it is translated: text for later, or known now."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from harness.errors import BenchError

NONE = -(2**62)  # stands for None wherever a number might be
NumberKind = Literal["int", "float", "bool"]


class NotTranslated(BenchError):  # noqa: N818 - Python runs it instead
    """A program uses what translation does not know."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number, or None; text: an expression without effects, of slots and constants alone."""

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
    """A tuple, or whatever else has so many items."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Inline:
    """A lambda, and what its names mean where it stands."""

    node: ast.Lambda
    names: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BlockNamed:
    """A block of the model."""

    name: str


@dataclass(frozen=True, slots=True)
class Known:
    """Any object of Python's: the model, a function, a constant that is no number."""

    value: Any


@dataclass(frozen=True, slots=True)
class TheWriter:
    """`p`."""


@dataclass(frozen=True, slots=True)
class TheInstance:
    """The instance that the program is run for. kind: its class."""

    kind: type


Value = (
    Number | ListAt | DictAt | Span | Several | Inline | BlockNamed | Known | TheWriter
    | TheInstance
)  # fmt: skip
TRUE, FALSE = Number("bool", "True"), Number("bool", "False")
NOTHING = Number("int", str(NONE))


def literal(value: float) -> Number:
    """A number that is known now."""
    if isinstance(value, bool):
        return TRUE if value else FALSE
    return Number("int" if isinstance(value, int) else "float", repr(value))


def kind_of(value: Value) -> str:
    """How a parameter that is given this is kept, in words that tell entries apart."""
    if isinstance(value, Number):
        return "float" if value.kind == "float" else "int"
    if isinstance(value, ListAt | DictAt):
        return type(value).__name__
    return repr(value)
