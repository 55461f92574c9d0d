"""Loops of programs over lists and ranges, as basic blocks of compiled code; comprehensions."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from harness.programs.compiling.calls import Calls
from harness.programs.compiling.scopes import Scope
from harness.programs.compiling.values import (
    ArrayAt,
    DictAt,
    Known,
    ListAt,
    Number,
    NumberKind,
    Several,
    Span,
    Value,
    Zipped,
)

Way = tuple[int, int]  # the blocks that `continue` and `break` go to


class Loops(Calls):
    """`each` is a loop over an expression, whose body is written inside of it."""

    @abstractmethod
    def assign(self, scope: Scope, target: ast.expr, value: Value) -> None:
        """Set names."""

    @contextmanager
    def each(self, scope: Scope, node: ast.expr) -> Iterator[tuple[Value, Way]]:
        """A loop over an expression: an item, and where it can go."""
        with self._steps(scope, node, self._over(scope, node)) as found:
            yield found

    def _over(self, scope: Scope, node: ast.expr) -> Value:
        """What is gone through; `zip` and `enumerate` become several of that."""
        called = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = self.value(scope, node.func)
        if not isinstance(node, ast.Call) or called not in (Known(zip), Known(enumerate)):
            found = self.value(scope, node)
            return self.listed(scope, node, found) if isinstance(found, Several) else found
        parts = [self.text.kept(self._over(scope, one)) for one in node.args]
        if called == Known(enumerate):
            if len(parts) > 1 or node.keywords:
                scope.refuse(node, "counts from something else than 0")
            return Zipped((Span("0", str(2**62)), *parts))
        strict = [ast.unparse(keyword) for keyword in node.keywords]
        if strict not in ([], ["strict=True"], ["strict=False"]):
            scope.refuse(node, f"zips in a way that is not translated: {ast.unparse(node)}")
        if strict == ["strict=True"]:
            self._check_lengths(scope, node, Zipped(tuple(parts)))
        return Zipped(tuple(parts))

    def _check_lengths(self, scope: Scope, node: ast.AST, over: Zipped) -> None:
        first, *others = self._lengths(scope, node, over)
        for one in others:
            self.text.add(f"if {one} != {first}:", "    raise ValueError('other lengths')")

    @contextmanager
    def loop(self, scope: Scope, node: ast.AST, over: Value) -> Iterator[Value]:
        """See Calls."""
        if isinstance(over, Zipped):
            self._check_lengths(scope, node, over)
        with self._steps(scope, node, over) as (item, _):
            yield item

    @contextmanager
    def _steps(self, scope: Scope, node: ast.AST, over: Value) -> Iterator[tuple[Value, Way]]:
        over, place = self.text.kept(over), self.text.slot("int")
        self.text.add(f"{place} = 0")
        lengths = self._lengths(scope, node, over)
        test, inside, again, behind = (self.text.new() for _ in range(4))
        self.text.at(test)
        going = " and ".join(f"{place} < {one}" for one in lengths)
        self.text.fork(f"({going})", inside, behind)
        self.text.current = inside
        yield self._item(over, place), (again, behind)
        self.text.at(again)
        self.text.add(f"{place} += 1")
        self.text.jump(test)
        self.text.current = behind

    def _lengths(self, scope: Scope, node: ast.AST, over: Value) -> list[str]:
        """Of all that is gone through side by side."""
        if isinstance(over, ListAt | ArrayAt):
            return [f"lists[{over.text}, 1]"]
        if isinstance(over, Span):
            return [f"({over.stop} - {over.start})"]
        if isinstance(over, Zipped) and over.items:
            return [one for item in over.items for one in self._lengths(scope, node, item)]
        scope.refuse(node, "goes through something else than lists and ranges")

    def _item(self, over: Value, place: str) -> Value:
        if isinstance(over, Zipped):
            return Several(tuple(self._item(one, place) for one in over.items))
        if isinstance(over, ListAt | ArrayAt):
            kind: NumberKind = "int" if isinstance(over, ListAt) else "narrow"
            return self.temporary(kind, f"item(lists, items, {over.text}, {place})")
        assert isinstance(over, Span)
        return Number("int", f"({over.start} + {place})")

    def comprehension(self, scope: Scope, node: ast.ListComp) -> Value:
        """See Expressions; [d[k] for k in sorted(d)] is read in one go."""
        values = self._values_by_key(scope, node)
        if values is not None:
            return values
        found = self.long_list("4")
        targets = {
            one.id
            for generator in node.generators
            for one in ast.walk(generator.target)
            if isinstance(one, ast.Name)
        }
        known = {name: value for name, value in scope.names.items() if name not in targets}
        over = self.text.kept(self._over(scope, node.generators[0].iter))
        self._generated(Scope(scope.source, known, None), node, node.generators, found, over)
        return found

    def _generated(
        self,
        scope: Scope,
        node: ast.ListComp,
        generators: list[ast.comprehension],
        found: ListAt,
        over: Value,
    ) -> None:
        """over: what the first of the generators goes through."""
        first, *others = generators
        with self._steps(scope, node, over) as (item, (again, _)):
            self.assign(scope, first.target, item)
            for condition in first.ifs:
                going = self.text.new()
                self.text.fork(self.test(scope, condition), going, again)
                self.text.current = going
            if others:
                self._generated(scope, node, others, found, self._over(scope, others[0].iter))
            else:
                self.append(found, self.item_of(scope, node, self.value(scope, node.elt)))

    def _values_by_key(self, scope: Scope, node: ast.ListComp) -> Value | None:
        first = node.generators[0]
        if len(node.generators) > 1 or first.ifs or not isinstance(node.elt, ast.Subscript):
            return None
        of = node.elt.value
        if not isinstance(of, ast.Name) or ast.unparse(first.iter) != f"sorted({of.id})":
            return None
        value = self.value(scope, of)
        if ast.unparse(node.elt.slice) != ast.unparse(first.target) or not isinstance(
            value, DictAt
        ):
            return None
        return self.sorted_keys(value, values=True)
