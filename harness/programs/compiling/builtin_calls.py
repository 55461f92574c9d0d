"""Builtins and methods of lists in programs, as text of compiled code."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from harness.programs.compiling.lists import Lists
from harness.programs.compiling.scopes import Scope
from harness.programs.compiling.values import (
    NOTHING,
    ArrayAt,
    DictAt,
    ListAt,
    Number,
    Several,
    Span,
    Value,
    literal,
)

BUILTINS = (int, float, bool, abs, max, min, len, range, list, sorted)


class BuiltinCalls(Lists):
    """A method `_builtin_NAME` for each function; `_listat_NAME`, `_arrayat_NAME` for each method
    of lists and arrays.
    """

    def _builtin_int(self, scope: Scope, node: ast.Call, of: Value) -> Number:
        found = self.there(scope, node, of)
        if found.kind == "float":
            return self.temporary("int", f"whole({found.text})")
        return Number("int", f"int({found.text})")

    def _builtin_float(self, scope: Scope, node: ast.Call, of: Value) -> Number:
        return Number("float", f"float({self.there(scope, node, of).text})")

    def _builtin_bool(self, scope: Scope, node: ast.Call, of: Value) -> Number:
        return Number("bool", self.is_true(scope, node, of))

    def _builtin_abs(self, scope: Scope, node: ast.Call, of: Value) -> Number:
        found = self.computable(scope, node, self.there(scope, node, of))
        return Number(found.kind, f"abs({found.text})")

    def _builtin_max(self, scope: Scope, node: ast.Call, *of: Value) -> Number:
        return self._extreme(scope, node, "max", of)

    def _builtin_min(self, scope: Scope, node: ast.Call, *of: Value) -> Number:
        return self._extreme(scope, node, "min", of)

    def _extreme(self, scope: Scope, node: ast.Call, name: str, of: Sequence[Value]) -> Number:
        if len(of) < 2:
            scope.refuse(node, f"takes {name} of something else than two numbers, or more")
        numbers = [self.computable(scope, node, self.there(scope, node, value)) for value in of]
        if len({number.kind for number in numbers}) != 1:
            scope.refuse(node, f"takes {name} of numbers of several kinds")
        return Number(numbers[0].kind, f"{name}({', '.join(one.text for one in numbers)})")

    def _builtin_len(self, scope: Scope, node: ast.Call, of: Value) -> Number:
        if isinstance(of, ListAt | ArrayAt):
            return self.temporary("int", f"lists[{of.text}, 1]")
        if isinstance(of, Several):
            return literal(len(of.items))
        if isinstance(of, Span):
            return Number("int", f"max(0, {of.stop} - {of.start})")
        scope.refuse(node, "takes the length of something else than a list")

    def _builtin_range(self, scope: Scope, node: ast.Call, *of: Value) -> Span:
        texts = [self.whole(scope, node, value) for value in of]
        if len(texts) not in (1, 2):
            scope.refuse(node, "has a range with a step")
        start, stop = texts if len(texts) == 2 else ("0", texts[0])
        return Span(start, stop)

    def _builtin_list(self, scope: Scope, node: ast.Call, of: Value) -> ListAt:
        return self.listed(scope, node, of)

    def _builtin_sorted(self, scope: Scope, node: ast.Call, of: Value) -> ListAt:
        if isinstance(of, DictAt):
            return self.sorted_keys(of, values=False)
        found = self.listed(scope, node, of)
        self.text.add(f"sort(lists, items, {found.text})")
        return found

    def _arrayat_tolist(self, scope: Scope, node: ast.Call, of: ArrayAt) -> ListAt:
        return self.listed(scope, node, ListAt(of.text))

    def _listat_copy(self, scope: Scope, node: ast.Call, of: ListAt) -> ListAt:
        return self.listed(scope, node, of)

    def _listat_append(self, scope: Scope, node: ast.Call, of: ListAt, item: Value) -> Number:
        self.append(of, self.item_of(scope, node, item))
        return NOTHING

    def _listat_extend(self, scope: Scope, node: ast.Call, of: ListAt, by: Value) -> Number:
        self.extend(of, by if isinstance(by, ListAt) else self.listed(scope, node, by))
        return NOTHING

    def _listat_pop(self, scope: Scope, node: ast.Call, of: ListAt) -> Number:
        return self.temporary("int", f"pop(lists, items, {of.text})")


def operand_of(scope: Scope, node: ast.AST, value: Value) -> str:
    """The text of what a call is given; None has too many bits, and so is a fault."""
    if not isinstance(value, Number) or value.kind == "float":
        scope.refuse(node, f"needs integers: {ast.unparse(node)}")
    return value.text
