"""Inputs of compiled programs: numbers of the model, and fields of instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_type_hints

from dynbatch.harness.errors import CompileError
from dynbatch.harness.values.arrays import IntArray


@dataclass(frozen=True, slots=True)
class TheWriter:
    """Stand-in for the writer `p`."""


@dataclass(frozen=True, slots=True)
class TheInstance:
    """Stand-in for the instance, of class `kind`, that the program runs for."""

    kind: type


class Constants:
    """Indices of all inputs in memory, so that one machine code serves all options of a model.

    Attributes:
        ints, reals: indices of the model's numbers, by name.
        fields: indices of the instances' arrays, by name.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, type] = {}
        self.ints: dict[str, int] = {}
        self.reals: dict[str, int] = {}
        self.fields: dict[str, int] = {}

    def index_model_number(self, name: str, value: bool | float) -> tuple[int, bool]:
        """Return the index of a number of the model, and True if it is among the reals."""
        self.kinds[name] = type(value)
        is_real = isinstance(value, float)
        return _assign_index(self.reals if is_real else self.ints, name), is_real

    def index_instance_field(self, kind: type, name: str) -> int:
        """Return the index of a field, which its class declares as an array of integers."""
        attribute: Any = getattr(kind, name, None)
        is_property = isinstance(attribute, property)
        hints = read_type_hints(attribute.fget if is_property else kind)
        hint = hints.get("return" if is_property else name)
        if hint != IntArray:
            raise CompileError(f"reads {name}, which is not an array of integers")
        return _assign_index(self.fields, name)

    def read_numbers(self, model: Any) -> tuple[list[int], list[float]]:
        """Return the ints and the reals of the model.

        Raises:
            TypeError: if the type of one has changed.
        """
        for name, kind in self.kinds.items():
            if type(getattr(model, name)) is not kind:
                raise TypeError(f"{name} of {model.name} was of {kind}")
        return [int(getattr(model, n)) for n in self.ints], [getattr(model, n) for n in self.reals]


def read_type_hints(annotated: Any) -> dict[str, Any]:
    """Return the type hints of a function or class; empty if they cannot be evaluated."""
    try:
        return get_type_hints(annotated)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return {}


def _assign_index(known: dict[str, int], name: str) -> int:
    return known.setdefault(name, len(known))
