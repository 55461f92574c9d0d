"""What a translation takes from outside: numbers of the model, and fields of instances."""

from __future__ import annotations

import ast
from typing import Any

from harness.programs.compiling.scopes import Scope, hints_of
from harness.programs.compiling.texts import INSTANCE
from harness.programs.compiling.values import ArrayAt, Number, Value
from harness.values.arrays import IntArray


class Constants:
    """Each by its place in an array, so that one machine code serves all options of a model.

    kinds: of the model's numbers. ints, reals: their names. fields, counts: names of the
    instances' lists and numbers. states: which numbers are waited for.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, type] = {}
        self.ints: dict[str, int] = {}
        self.reals: dict[str, int] = {}
        self.fields: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.states: dict[str, int] = {}

    def of_model(self, name: str, value: bool | float) -> Number:
        """A number of the model."""
        self.kinds[name] = type(value)
        if isinstance(value, float):
            return Number("float", f"reals[{_place(self.reals, name)}]")
        text = f"ints[{_place(self.ints, name)}]"
        return Number("bool", f"({text} != 0)") if isinstance(value, bool) else Number("int", text)

    def field(self, scope: Scope, node: ast.Attribute, kind: type) -> Value:
        """A field of the instance, by what its class says of it."""
        found = getattr(kind, node.attr, None)
        hints = hints_of(found.fget if isinstance(found, property) else kind)
        hint = hints.get("return" if isinstance(found, property) else node.attr)
        if hint is int:
            place = _place(self.counts, node.attr)
            return Number("int", f"counts[{place}, S[{INSTANCE}]]")
        if hint == IntArray:
            place = _place(self.fields, node.attr)
            return ArrayAt(f"({place} * counts.shape[1] + S[{INSTANCE}])")
        scope.refuse(node, f"reads {node.attr}, which is neither a number nor an array of them")

    def state(self, name: str) -> int:
        """The number of a state that is read."""
        return _place(self.states, name)

    def numbers_of(self, model: Any) -> tuple[list[int], list[float]]:
        """What the model's are; raises TypeError where one is of another kind than it was."""
        for name, kind in self.kinds.items():
            if type(getattr(model, name)) is not kind:
                raise TypeError(f"{name} of {model.name} was of {kind}")
        return [int(getattr(model, n)) for n in self.ints], [getattr(model, n) for n in self.reals]


def _place(known: dict[str, int], name: str) -> int:
    return known.setdefault(name, len(known))
