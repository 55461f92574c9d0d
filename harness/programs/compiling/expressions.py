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
from harness.programs.compiling.scopes import Scope
from harness.programs.compiling.texts import Texts
from harness.programs.compiling.values import (
    NONE,
    NOTHING,
    BlockNamed,
    DictAt,
    Inline,
    Known,
    ListAt,
    NotTranslated,
    Number,
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

    def integer(self, scope: Scope, node: ast.expr) -> str:
        """The text of an integer."""
        found = self.number(scope, node)
        if found.kind == "float":
            scope.refuse(node, f"needs an integer, not {ast.unparse(node)}")
        return found.text

    def test(self, scope: Scope, node: ast.expr) -> str:
        """The text of whether something is true."""
        found = self.value(scope, node)
        if isinstance(found, Number):
            return found.text if found.kind == "bool" else self._is_any(found)
        if isinstance(found, ListAt | DictAt):
            return f"(lists[{found.text}, 1] > 0)"
        scope.refuse(node, f"cannot be a condition: {ast.unparse(node)}")

    @staticmethod
    def _is_any(number: Number) -> str:
        return f"(({number.text} != 0) and ({number.text} != {NONE}))"

    def temporary(self, kind: str, text: str) -> Number:
        """What is read now, whatever is changed later."""
        found = self.text.kept(Number("float" if kind == "float" else "int", text))
        assert isinstance(found, Number)
        return found

    def _of_constant(self, scope: Scope, node: ast.Constant) -> Value:
        if node.value is None:
            return NOTHING
        if isinstance(node.value, bool | int | float):
            return literal(node.value)
        return Known(node.value)

    def _of_name(self, scope: Scope, node: ast.Name) -> Value:
        if node.id in scope.names:
            return scope.names[node.id]
        for known in (scope.source.outside, vars(builtins)):
            if node.id in known:
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
        if isinstance(found, bool | int | float):
            return self.constants.of_model(node.attr, found)
        if callable(found):
            return Known(found)
        scope.refuse(node, f"reads {ast.unparse(node)}, which is no number")

    def _of_unaryop(self, scope: Scope, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return Number("bool", f"(not {self.test(scope, node.operand)})")
        found = self.number(scope, node.operand)
        if isinstance(node.op, ast.USub):
            if found.is_literal:
                return Number(found.kind, f"-{found.text}")
            return Number(_plain(found), f"(-{found.text})")
        scope.refuse(node, f"has an operator that is not translated: {ast.unparse(node)}")

    def _of_binop(self, scope: Scope, node: ast.BinOp) -> Value:
        left, right = self.value(scope, node.left), self.value(scope, node.right)
        if isinstance(left, Number) and isinstance(right, Number):
            return self.arithmetic(scope, node, node.op, left, right)
        if isinstance(left, ListAt) and isinstance(right, ListAt) and isinstance(node.op, ast.Add):
            return self.joined(left, right)
        if isinstance(left, ListAt) and isinstance(right, Number) and isinstance(node.op, ast.Mult):
            return self.repeated(left, right)
        scope.refuse(node, f"has an operator that is not translated: {ast.unparse(node)}")

    @abstractmethod
    def joined(self, left: ListAt, right: ListAt) -> ListAt:
        """left + right."""

    @abstractmethod
    def repeated(self, items: ListAt, n: Number) -> ListAt:
        """items * n."""

    def arithmetic(
        self, scope: Scope, node: ast.AST, op: ast.operator, left: Number, right: Number
    ) -> Number:
        """One operator of two numbers."""
        sign = ARITHMETIC.get(type(op))
        if sign is None:
            scope.refuse(node, f"has an operator that is not translated: {type(op).__name__}")
        kinds = {left.kind, right.kind}
        kind = "float" if "float" in kinds or sign == "/" else "int"
        if kind == "int" and sign == "*":
            return Number("int", f"times({left.text}, {right.text})")
        if kind == "int" and sign in "+-" and not (left.is_literal or right.is_literal):
            negative = f"-{right.text}" if sign == "-" else right.text
            return Number("int", f"plus({left.text}, {negative})")
        text = f"({left.text} {sign} {right.text})"
        # What may raise is done where it stands, and not where a condition is read.
        if sign in ("/", "//", "%") and not right.is_literal:
            return self.temporary(kind, text)
        return Number("float" if kind == "float" else "int", text)

    def _of_compare(self, scope: Scope, node: ast.Compare) -> Value:
        signs = [COMPARISONS.get(type(op)) for op in node.ops]
        if len(node.ops) > 1 and not all(
            isinstance(one, ast.Name | ast.Constant) for one in node.comparators[:-1]
        ):
            scope.refuse(node, f"compares what is computed twice: {ast.unparse(node)}")
        parts = [self.number(scope, one) for one in (node.left, *node.comparators)]
        if None in signs:
            scope.refuse(node, f"has an operator that is not translated: {ast.unparse(node)}")
        tests = [
            f"({left.text} {sign} {right.text})"
            for left, sign, right in zip(parts[:-1], signs, parts[1:], strict=True)
        ]
        return Number("bool", tests[0] if len(tests) == 1 else f"({' and '.join(tests)})")

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
        result = self.text.place_like(found)
        self.text.stored(result, found)
        self.text.jump(behind)
        self.text.current = otherwise
        self.text.stored(result, self.value(scope, node.orelse))
        self.text.at(behind)
        return result

    def _of_subscript(self, scope: Scope, node: ast.Subscript) -> Value:
        of = self.value(scope, node.value)
        if isinstance(node.slice, ast.Slice):
            return self.sliced(scope, of, node.slice)
        if isinstance(of, DictAt):
            key = self.integer(scope, node.slice)
            return self.temporary("int", f"lookup(lists, items, {of.text}, {key})")
        place = self.number(scope, node.slice)
        if isinstance(of, Several) and place.is_literal:
            return of.items[int(place.text)]
        if isinstance(of, ListAt):
            return self.temporary("int", f"item(lists, items, {of.text}, {place.text})")
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
        return Inline(node, scope.names)


def _plain(number: Number) -> Any:
    return "float" if number.kind == "float" else "int"


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


__all__ = ["Expressions", "NotTranslated", "called_function"]
