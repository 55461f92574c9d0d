"""Expressions of programs, as text of compiled code."""

from __future__ import annotations

import ast
import builtins
from abc import ABC, abstractmethod
from types import FunctionType
from typing import Any

import numpy as np

from harness.programs.compiling.arithmetic import Arithmetic
from harness.programs.compiling.scopes import Scope
from harness.programs.compiling.values import (
    NOTHING,
    ArrayAt,
    BlockNamed,
    DictAt,
    Inline,
    Known,
    ListAt,
    Number,
    NumberKind,
    Several,
    Span,
    TheInstance,
    TheWriter,
    Value,
    literal,
)

MOST = 2**61  # of an integer, either way: see kept_numbers


class Expressions(Arithmetic, ABC):
    """Names, constants, attributes, items, and whatever holds others."""

    @abstractmethod
    def call(self, scope: Scope, node: ast.Call) -> Value:
        """What a call returns."""

    @abstractmethod
    def waited(self, scope: Scope, node: ast.Yield | ast.YieldFrom) -> Value:
        """What is answered to what a program yields."""

    @abstractmethod
    def comprehension(self, scope: Scope, node: ast.ListComp) -> Value:
        """A new list."""

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
