"""Numbers that expressions of programs come to, and what may be asked of them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from harness.programs.compiling.constants import Constants
from harness.programs.compiling.scopes import Scope
from harness.programs.compiling.texts import Texts
from harness.programs.compiling.values import (
    NONE,
    NOTHING,
    DictAt,
    ListAt,
    NotTranslated,
    Number,
    NumberKind,
    Value,
)


class Numbers:
    """`value` translates any expression: what it does is written, what it gives is returned.

    A method `_of_NAME` for each kind of expression, by the name of its class in `ast`.
    """

    def __init__(self, model: Any, constants: Constants) -> None:
        self.model, self.constants = model, constants
        self.text = Texts()

    def value(self, scope: Scope, node: ast.expr) -> Value:
        """Raises NotTranslated for an expression that is not known here."""
        translate: Callable[..., Value] | None = getattr(
            self, f"_of_{type(node).__name__.lower()}", None
        )
        if translate is None:
            scope.refuse(node, f"has an expression that is not translated: {ast.unparse(node)}")
        return translate(scope, node)

    def number(self, scope: Scope, node: ast.expr) -> Number:
        """A number, or None."""
        found = self.value(scope, node)
        if not isinstance(found, Number):
            scope.refuse(node, f"needs a number, not {ast.unparse(node)}")
        return found

    def there(self, scope: Scope, node: ast.AST, found: Value) -> Number:
        """A number that is none of those that may be None: what is, is a fault."""
        if not isinstance(found, Number) or found == NOTHING:
            scope.refuse(node, f"needs numbers: {ast.unparse(node)}")
        if found.kind != "maybe":
            return found
        self.text.add(f"if {found.text} == {NONE}:", "    raise TypeError('None is no number')")
        return Number("int", found.text)

    def whole(self, scope: Scope, node: ast.AST, value: Value) -> str:
        """The text of an integer that something is counted by."""
        found = self.there(scope, node, value)
        if found.kind == "float":
            scope.refuse(node, f"needs integers: {ast.unparse(node)}")
        return found.text

    def integer(self, scope: Scope, node: ast.expr) -> str:
        """The same of an expression."""
        return self.whole(scope, node, self.value(scope, node))

    def item_of(self, scope: Scope, node: ast.AST, value: Value) -> str:
        """The text of what a list may hold."""
        if isinstance(value, Number) and value.kind == "narrow":
            scope.refuse(node, "keeps a number of 32 bits in a list; take int() of it")
        return self.whole(scope, node, value)

    def store(self, scope: Scope, node: ast.AST, place: Value, value: Value) -> None:
        """Assign to a place; another kind of value is refused with the line."""
        try:
            self.text.stored(place, value)
        except NotTranslated as error:
            scope.refuse(node, str(error))

    def test(self, scope: Scope, node: ast.expr) -> str:
        """The text of whether something is true."""
        return self.is_true(scope, node, self.value(scope, node))

    def is_true(self, scope: Scope, node: ast.expr, found: Value) -> str:
        """The same of a value."""
        if isinstance(found, Number):
            return found.text if found.kind == "bool" else self._is_any(found)
        if isinstance(found, ListAt | DictAt):  # of an array, NumPy says that it is not clear
            return f"(lists[{found.text}, 1] > 0)"
        scope.refuse(node, f"cannot be a condition: {ast.unparse(node)}")

    @staticmethod
    def _is_any(number: Number) -> str:
        return f"(({number.text} != 0) and ({number.text} != {NONE}))"

    def temporary(self, kind: NumberKind, text: str) -> Number:
        """What is read now, whatever is changed later."""
        found = self.text.kept(Number(kind, text))
        assert isinstance(found, Number)
        return found
