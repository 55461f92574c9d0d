"""Expressions of programs, as text of compiled code."""

from __future__ import annotations

import ast
import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import numpy as np

from harness.programs.compiling.constants import Constants
from harness.programs.compiling.scopes import Scope, is_none
from harness.programs.compiling.texts import Texts
from harness.programs.compiling.values import (
    NONE,
    NOTHING,
    ArrayAt,
    BlockNamed,
    DictAt,
    Inline,
    Known,
    ListAt,
    NotTranslated,
    Number,
    NumberKind,
    Several,
    Span,
    TheInstance,
    TheWriter,
    Value,
    literal,
)

ARITHMETIC: Mapping[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"
}  # fmt: skip
COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "==", ast.IsNot: "!=",
}  # fmt: skip


MOST = 2**61  # of an integer, either way: see kept_lists
SMALL_DIGITS = 9


class Expressions(ABC):
    """`value` translates any expression: what it does is written, what it gives is returned."""

    def __init__(self, model: Any, constants: Constants) -> None:
        self.model, self.constants = model, constants
        self.text = Texts()

    @abstractmethod
    def call(self, scope: Scope, node: ast.Call) -> Value:
        """What a call returns."""

    @abstractmethod
    def waited(self, scope: Scope, node: ast.Yield | ast.YieldFrom) -> Value:
        """What is answered to what a program yields."""

    @abstractmethod
    def comprehension(self, scope: Scope, node: ast.ListComp) -> Value:
        """A new list."""

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

    def _of_constant(self, scope: Scope, node: ast.Constant) -> Value:
        if node.value is None:
            return NOTHING
        if isinstance(node.value, int) and abs(node.value) >= MOST:
            scope.refuse(node, f"has a number of more than 61 bits: {node.value}")
        if isinstance(node.value, bool | int | float):
            return literal(node.value)
        return Known(node.value)

    def _of_name(self, scope: Scope, node: ast.Name) -> Value:
        if node.id in scope.names:
            return scope.names[node.id]
        for known in (scope.source.outside, vars(builtins)):
            if node.id in known and node.id not in scope.source.assigned:
                return _of_object(known[node.id])
        scope.refuse(node, f"reads {node.id}, which is not set on every way there")

    def _of_tuple(self, scope: Scope, node: ast.Tuple) -> Value:
        return Several(tuple(self._kept_items(scope, node.elts)))

    def _kept_items(self, scope: Scope, nodes: list[ast.expr]) -> list[Value]:
        """Of several, where those before the last may be changed by what comes behind them."""
        return [self.text.kept(self.value(scope, one)) for one in nodes]

    def _of_attribute(self, scope: Scope, node: ast.Attribute) -> Value:
        of = self.value(scope, node.value)
        if isinstance(of, TheWriter):
            return BlockNamed(node.attr)
        if isinstance(of, TheInstance):
            return self.constants.field(scope, node, of.kind)
        if isinstance(of, Known) and of.value is self.model:
            return self._of_model(scope, node)
        if isinstance(of, Known) and type(of.value).__name__ == "module":
            return _of_object(getattr(of.value, node.attr, None))
        scope.refuse(node, f"has an attribute that is not translated: {ast.unparse(node)}")

    def _of_model(self, scope: Scope, node: ast.Attribute) -> Value:
        found = getattr(self.model, node.attr, None)
        if isinstance(found, float) or (isinstance(found, int) and abs(found) < MOST):
            return self.constants.of_model(node.attr, found)
        if callable(found):
            return Known(found)
        scope.refuse(node, f"reads {ast.unparse(node)}, which is no number")

    def _of_unaryop(self, scope: Scope, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return Number("bool", f"(not {self.test(scope, node.operand)})")
        found = self.computable(scope, node, self.number(scope, node.operand))
        if isinstance(node.op, ast.USub):
            if found.is_literal and not found.text.startswith("-"):
                return Number(found.kind, f"-{found.text}")
            return Number(found.kind, f"(-{found.text})")
        scope.refuse(node, f"has an operator that is not translated: {ast.unparse(node)}")

    def _of_binop(self, scope: Scope, node: ast.BinOp) -> Value:
        left, right = self.value(scope, node.left), self.value(scope, node.right)
        if isinstance(left, Number) and isinstance(right, Number):
            return self.arithmetic(scope, node, node.op, left, right)
        if isinstance(left, ListAt) and isinstance(right, ListAt) and isinstance(node.op, ast.Add):
            return self.joined(left, right)
        if isinstance(left, ListAt) and isinstance(right, Number) and isinstance(node.op, ast.Mult):
            return self.repeated(scope, node, left, right)
        scope.refuse(node, f"has an operator that is not translated: {ast.unparse(node)}")

    @abstractmethod
    def joined(self, left: ListAt, right: ListAt) -> ListAt:
        """left + right."""

    @abstractmethod
    def repeated(self, scope: Scope, node: ast.AST, items: ListAt, n: Number) -> ListAt:
        """items * n."""

    def arithmetic(
        self, scope: Scope, node: ast.AST, op: ast.operator, left: Number, right: Number
    ) -> Number:
        """One operator of two numbers."""
        sign = ARITHMETIC.get(type(op))
        if sign is None:
            scope.refuse(node, f"has an operator that is not translated: {ast.unparse(node)}")
        left, right = self.computable(scope, node, left), self.computable(scope, node, right)
        kinds = {left.kind, right.kind}
        kind: NumberKind = "float" if "float" in kinds or sign == "/" else "int"
        if kind == "int" and sign == "*":
            return Number("int", f"times({left.text}, {right.text})")
        if kind == "int" and sign in "+-" and not (_is_small(left) or _is_small(right)):
            negative = f"-{right.text}" if sign == "-" else right.text
            return Number("int", f"plus({left.text}, {negative})")
        text = f"({left.text} {sign} {right.text})"
        # What may raise is done where it stands, and not where a condition is read.
        if sign in ("/", "//", "%") and not right.is_literal:
            return self.temporary(kind, text)
        return Number(kind, text)

    def computable(self, scope: Scope, node: ast.AST, value: Number) -> Number:
        """A number as Python would compute with it."""
        found = self.there(scope, node, value)
        if found.kind == "narrow":
            scope.refuse(node, "computes with a number of 32 bits, which wraps; take int() of it")
        return Number("int", f"int({found.text})") if found.kind == "bool" else found

    def _of_compare(self, scope: Scope, node: ast.Compare) -> Value:
        if len(node.ops) == 1:
            return self._compared(scope, node, node.ops[0])
        if not all(isinstance(one, ast.Name | ast.Constant) for one in node.comparators[:-1]):
            scope.refuse(node, f"compares what is computed twice: {ast.unparse(node)}")
        parts = (node.left, *node.comparators)
        pairs = zip(parts[:-1], node.ops, parts[1:], strict=True)
        each: list[ast.expr] = [
            ast.copy_location(ast.Compare(left, [op], [right]), node) for left, op, right in pairs
        ]
        return self._of_boolop(scope, ast.BoolOp(ast.And(), each))

    def _compared(self, scope: Scope, node: ast.Compare, op: ast.cmpop) -> Number:
        sign = COMPARISONS.get(type(op))
        if sign is None:
            scope.refuse(node, f"has an operator that is not translated: {ast.unparse(node)}")
        left, right = self.value(scope, node.left), self.value(scope, node.comparators[0])
        if isinstance(op, ast.Is | ast.IsNot):
            if right != NOTHING:
                scope.refuse(node, f"takes `is` of something else than None: {ast.unparse(node)}")
            if not isinstance(left, Number) or left.kind != "maybe":
                return literal(isinstance(op, ast.IsNot))
        elif sign not in ("==", "!="):
            left, right = self.there(scope, node, left), self.there(scope, node, right)
        if not isinstance(left, Number) or not isinstance(right, Number):
            scope.refuse(node, f"compares something else than numbers: {ast.unparse(node)}")
        if "float" in (kinds := {left.kind, right.kind}) and "maybe" in kinds:
            left, right = self.there(scope, node, left), self.there(scope, node, right)
        return Number("bool", f"({left.text} {sign} {right.text})")

    def _of_boolop(self, scope: Scope, node: ast.BoolOp) -> Value:
        """Whether all are true, or any is; those behind the one that decides are not looked at."""
        word = "and" if isinstance(node.op, ast.And) else "or"
        first = self._truth(scope, node.values[0])
        for one in node.values[1:]:
            first = self._either(scope, word, first, one)
        return first

    def _truth(self, scope: Scope, node: ast.expr) -> Number:
        found = self.value(scope, node)
        if not isinstance(found, Number) or found.kind != "bool":
            scope.refuse(node, f"joins by `and`, `or` what is no bool: {ast.unparse(node)}")
        return found

    def _either(self, scope: Scope, word: str, first: Number, node: ast.expr) -> Number:
        start, before = self.text.new(), self.text.current
        self.text.current = start
        second = self._truth(scope, node)
        if self.text.current == start and not self.text.now.lines:  # it does nothing
            self.text.current = before
            return Number("bool", f"({first.text} {word} {second.text})")
        ending, self.text.current = self.text.current, before
        result = self.text.place_like(first)
        self.text.stored(result, first)
        behind, decided = self.text.new(), first.text if word == "or" else f"(not {first.text})"
        self.text.fork(decided, behind, start)
        self.text.current = ending
        self.text.stored(result, second)
        self.text.at(behind)
        assert isinstance(result, Number)
        return result

    def _of_ifexp(self, scope: Scope, node: ast.IfExp) -> Value:
        then, otherwise, behind = self.text.new(), self.text.new(), self.text.new()
        self.text.fork(self.test(scope, node.test), then, otherwise)
        self.text.current = then
        found = self.value(scope, node.body)
        result = self.text.place_like(perhaps(found, may_be_none=is_none(node.orelse)))
        self.store(scope, node, result, found)
        self.text.jump(behind)
        self.text.current = otherwise
        self.store(scope, node, result, self.value(scope, node.orelse))
        self.text.at(behind)
        return result

    def _of_subscript(self, scope: Scope, node: ast.Subscript) -> Value:
        of = self.value(scope, node.value)
        if isinstance(node.slice, ast.Slice):
            return self.sliced(scope, of, node.slice)
        if isinstance(of, DictAt):
            key = self.integer(scope, node.slice)
            return self.temporary("int", f"lookup(lists, items, {of.text}, {key})")
        place = self.there(scope, node, self.value(scope, node.slice))
        if isinstance(of, Several) and place.is_literal and place.kind == "int":
            if not -len(of.items) <= int(place.text) < len(of.items):
                scope.refuse(node, f"has an index beyond the tuple: {ast.unparse(node)}")
            return of.items[int(place.text)]
        if isinstance(of, ListAt | ArrayAt) and place.kind != "float":
            kind: NumberKind = "int" if isinstance(of, ListAt) else "narrow"
            return self.temporary(kind, f"item(lists, items, {of.text}, {place.text})")
        if isinstance(of, Span) and place.is_literal:
            begin, n = (
                of.stop if place.text.startswith("-") else of.start,
                f"({of.stop} - {of.start})",
            )
            self.text.add(
                f"if {place.text} >= {n} or {place.text} < -{n}:",
                "    raise IndexError('list index out of range')",
            )
            return Number("int", f"({begin} + {place.text})")
        scope.refuse(node, f"has an index that is not translated: {ast.unparse(node)}")

    @abstractmethod
    def sliced(self, scope: Scope, of: Value, cut: ast.Slice) -> Value:
        """A copy of a part."""

    def _of_call(self, scope: Scope, node: ast.Call) -> Value:
        return self.call(scope, node)

    def _of_yield(self, scope: Scope, node: ast.Yield) -> Value:
        return self.waited(scope, node)

    def _of_yieldfrom(self, scope: Scope, node: ast.YieldFrom) -> Value:
        return self.waited(scope, node)

    def _of_listcomp(self, scope: Scope, node: ast.ListComp) -> Value:
        return self.comprehension(scope, node)

    def _of_lambda(self, scope: Scope, node: ast.Lambda) -> Value:
        arguments = node.args
        if arguments.defaults or arguments.kwonlyargs or arguments.vararg or arguments.kwarg:
            scope.refuse(node, f"has a lambda with other than plain operands: {ast.unparse(node)}")
        return Inline(node, scope.names, scope.source)


def _is_small(number: Number) -> bool:
    """Whether no sum with it can be out of bounds, where the other one is not."""
    return number.is_literal and len(number.text) <= SMALL_DIGITS


def perhaps(value: Value, *, may_be_none: bool) -> Value:
    """The same, or None where that may be."""
    is_int = isinstance(value, Number) and value.kind in ("int", "bool")
    return NOTHING if is_int and may_be_none else value


def _of_object(found: Any) -> Value:
    """A global: numbers are written into the text."""
    if isinstance(found, bool | int | float):
        return literal(found)
    if isinstance(found, np.integer | np.floating):
        return literal(found.item())
    return Known(found)


def called_function(value: Value) -> FunctionType | None:
    """What a name stands for, where that is a function of Python's."""
    function = getattr(value.value, "__func__", value.value) if isinstance(value, Known) else None
    return function if isinstance(function, FunctionType) else None
