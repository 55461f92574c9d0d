"""Statements of programs, as basic blocks of compiled code."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Sequence

from harness.programs.compiling.arithmetic import perhaps
from harness.programs.compiling.loops import Loops
from harness.programs.compiling.scopes import Scope, first_line
from harness.programs.compiling.values import (
    NOTHING,
    DictAt,
    ListAt,
    NotTranslated,
    Number,
    Several,
    Value,
)


class Statements(Loops):
    """`body` translates them one behind the other."""

    def body(self, scope: Scope, statements: Sequence[ast.stmt]) -> None:
        """See Calls; what stands behind a `return` is left out."""
        for one in statements:
            if self.text.now.is_closed:
                return
            translate = getattr(self, f"_do_{type(one).__name__.lower()}", None)
            if translate is None:
                scope.refuse(one, f"has a statement that is not translated: {first_line(one)}")
            translate(scope, one)

    @abstractmethod
    def returned(self, scope: Scope, node: ast.Return, value: Value) -> None:
        """Leave a function."""

    def _do_pass(self, scope: Scope, node: ast.Pass) -> None:
        pass

    def _do_expr(self, scope: Scope, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.value(scope, node.value)

    def _do_return(self, scope: Scope, node: ast.Return) -> None:
        value = NOTHING if node.value is None else self.value(scope, node.value)
        self.returned(scope, node, value)

    def _do_assign(self, scope: Scope, node: ast.Assign) -> None:
        value = self.value(scope, node.value)
        if len(node.targets) > 1:
            value = self.text.kept(value)
        for target in node.targets:
            self.assign(scope, target, value)

    def _do_annassign(self, scope: Scope, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(scope, node.target, self.value(scope, node.value))

    def _do_augassign(self, scope: Scope, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript):
            self._change_item(scope, node, node.target)
            return
        old = self.value(scope, node.target)
        by = self.value(scope, node.value)
        if isinstance(old, ListAt) and isinstance(node.op, ast.Add):
            self.extend(old, by if isinstance(by, ListAt) else self.listed(scope, node, by))
        elif isinstance(old, Number) and isinstance(by, Number):
            self.assign(scope, node.target, self.arithmetic(scope, node, node.op, old, by))
        else:
            scope.refuse(node, f"has an assignment that is not translated: {ast.unparse(node)}")

    def _change_item(self, scope: Scope, node: ast.AugAssign, target: ast.Subscript) -> None:
        """of[key] += ...: both are looked up once."""
        of = self.text.kept(self.value(scope, target.value))
        if not isinstance(of, ListAt | DictAt) or isinstance(target.slice, ast.Slice):
            scope.refuse(node, f"has an assignment that is not translated: {ast.unparse(node)}")
        key = self.temporary("int", self.integer(scope, target.slice)).text
        read = "item" if isinstance(of, ListAt) else "lookup"
        old = self.temporary("int", f"{read}(lists, items, {of.text}, {key})")
        by = self.there(scope, node, self.value(scope, node.value))
        found = self.item_of(scope, node, self.arithmetic(scope, node, node.op, old, by))
        self._put_item(of, key, found)

    def assign(self, scope: Scope, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._name(scope, target, value)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(scope, target, value)
        elif isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            self._put(scope, target, value)
        else:
            scope.refuse(target, f"sets what is not translated: {ast.unparse(target)}")

    def _name(self, scope: Scope, target: ast.Name, value: Value) -> None:
        name = target.id
        if name not in scope.places:
            kind = perhaps(value, may_be_none=name in scope.source.nones)
            scope.places[name] = scope.names.get(name) or self.text.place_like(kind)
        try:
            self.text.stored(scope.places[name], value)
        except NotTranslated as error:
            scope.refuse(target, f"{error}: {name}")
        scope.names[name] = scope.places[name]

    def _unpack(self, scope: Scope, target: ast.Tuple | ast.List, value: Value) -> None:
        if not isinstance(value, Several) or len(value.items) != len(target.elts):
            scope.refuse(target, f"unpacks something else than so many: {ast.unparse(target)}")
        for one, item in zip(target.elts, value.items, strict=True):
            self.assign(scope, one, item)

    def _put(self, scope: Scope, target: ast.Subscript, value: Value) -> None:
        found = self.temporary("int", self.item_of(scope, target, value)).text
        of = self.value(scope, target.value)
        if not isinstance(of, ListAt | DictAt):
            scope.refuse(target, f"sets what is not translated: {ast.unparse(target)}")
        self._put_item(of, self.temporary("int", self.integer(scope, target.slice)).text, found)

    def _put_item(self, of: ListAt | DictAt, key: str, value: str) -> None:
        if isinstance(of, ListAt):
            self.text.add(f"put(lists, items, {of.text}, {key}, {value})")
        else:
            self.append(of, key)
            self.append(of, value)

    def _do_if(self, scope: Scope, node: ast.If) -> None:
        then, otherwise, behind = self.text.new(), self.text.new(), self.text.new()
        self.text.fork(self.test(scope, node.test), then, otherwise)
        before, known = dict(scope.names), list[dict[str, Value]]()
        for block, statements in ((then, node.body), (otherwise, node.orelse)):
            self.text.current = block
            scope.names = dict(before)
            self.body(scope, statements)
            if not self.text.now.is_closed:
                known.append(scope.names)
            self.text.jump(behind)
        scope.names = {
            k: v for k, v in (known or [before])[0].items() if all(k in n for n in known)
        }
        self.text.current = behind
        self.text.now.is_closed = not known

    def _do_while(self, scope: Scope, node: ast.While) -> None:
        if node.orelse:
            scope.refuse(node, "has an else behind a loop")
        test, inside, behind = self.text.new(), self.text.new(), self.text.new()
        self.text.at(test)
        condition = self.test(scope, node.test)
        before = dict(scope.names)
        if condition == "True":
            self.text.jump(inside)
        else:
            self.text.fork(condition, inside, behind)
        self.text.current = inside
        self._loop_body(scope, node.body, (test, behind))
        self.text.jump(test)
        scope.names, self.text.current = before, behind
        self.text.now.is_closed = not any(behind in one.targets for one in self.text.blocks)

    def _loop_body(self, scope: Scope, statements: Sequence[ast.stmt], to: tuple[int, int]) -> None:
        scope.loops.append(to)
        self.body(scope, statements)
        scope.loops.pop()

    def _do_break(self, scope: Scope, node: ast.Break) -> None:
        self.text.jump(scope.loops[-1][1])

    def _do_continue(self, scope: Scope, node: ast.Continue) -> None:
        self.text.jump(scope.loops[-1][0])

    def _do_for(self, scope: Scope, node: ast.For) -> None:
        if node.orelse:
            scope.refuse(node, "has an else behind a loop")
        before = dict(scope.names)
        with self.each(scope, node.iter) as (item, to):
            self.assign(scope, node.target, item)
            self._loop_body(scope, node.body, to)
        scope.names = before
