"""Operators of programs, as text of compiled code."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from harness.programs.compiling.numbers import Numbers
from harness.programs.compiling.scopes import Scope, is_none
from harness.programs.compiling.values import NOTHING, Number, NumberKind, Value, literal

ARITHMETIC: Mapping[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"
}  # fmt: skip
COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "==", ast.IsNot: "!=",
}  # fmt: skip
DIVISIONS: Mapping[tuple[str, NumberKind], str] = {  # functions of kept_numbers
    ("/", "float"): "quotient",
    ("//", "int"): "whole_quotient", ("%", "int"): "whole_rest",
    ("//", "float"): "real_quotient", ("%", "float"): "real_rest",
}  # fmt: skip
SMALL_DIGITS = 9


class Arithmetic(Numbers):
    """Of one, two and several numbers, comparisons, and what decides between two."""

    def _of_unaryop(self, scope: Scope, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return Number("bool", f"(not {self.test(scope, node.operand)})")
        found = self.computable(scope, node, self.number(scope, node.operand))
        if isinstance(node.op, ast.USub):
            if found.is_literal and not found.text.startswith("-"):
                return Number(found.kind, f"-{found.text}")
            return Number(found.kind, f"(-{found.text})")
        scope.refuse(node, f"has an operator that is not translated: {ast.unparse(node)}")

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
        name = DIVISIONS.get((sign, kind))
        is_plain = (kind == "int" or sign == "/") and _is_above_0(right)
        if name is None or is_plain:
            return Number(kind, f"({left.text} {sign} {right.text})")
        # What may raise is done where it stands, and not where a condition is read.
        return self.temporary(kind, f"{name}({left.text}, {right.text})")

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


def _is_small(number: Number) -> bool:
    """Return whether no sum with it can be out of bounds, where the other one is not."""
    return number.is_literal and len(number.text) <= SMALL_DIGITS


def _is_above_0(number: Number) -> bool:
    """Return whether it is known to be."""
    return number.is_literal and float(number.text) > 0


def perhaps(value: Value, *, may_be_none: bool) -> Value:
    """The same, or None where that may be."""
    is_int = isinstance(value, Number) and value.kind in ("int", "bool")
    return NOTHING if is_int and may_be_none else value
