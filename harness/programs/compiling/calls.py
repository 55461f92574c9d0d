"""Calls in programs, as text of compiled code: of blocks, builtins, methods of lists, functions."""

from __future__ import annotations

import ast
import inspect
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.programs.blocks import COUNTED
from harness.programs.compiling.builtin_calls import BUILTINS, BuiltinCalls, operand_of
from harness.programs.compiling.constants import Constants
from harness.programs.compiling.expressions import called_function
from harness.programs.compiling.scopes import Scope, source_of
from harness.programs.compiling.values import (
    NOTHING,
    ArrayAt,
    BlockNamed,
    Inline,
    Known,
    ListAt,
    Number,
    Several,
    Span,
    Value,
    Zipped,
)
from harness.programs.log import (
    BRANCH,
    CHAIN,
    CLOSE,
    GHOSTS,
    NO_NUMBER,
    OPEN,
    PHASE,
    CallText,
    Entry,
)

Given = Mapping[str, Value]
SHORT = re.compile(r"-?\d{1,9}")  # of fewer than 32 bits for sure


class Calls(BuiltinCalls):
    """text of calls: how blocks stand in the log (harness.programs.log)."""

    def __init__(self, model: Any, constants: Constants, calls: CallText) -> None:
        super().__init__(model, constants)
        self.calls = calls

    @abstractmethod
    def body(self, scope: Scope, statements: Sequence[ast.stmt]) -> None:
        """Translate statements, one behind the other."""

    def call(self, scope: Scope, node: ast.Call) -> Value:
        """See Expressions."""
        if isinstance(node.func, ast.Attribute):
            of = self.value(scope, node.func.value)
            method = getattr(self, f"_{type(of).__name__.lower()}_{node.func.attr}", None)
            if method is not None:
                return self._by(scope, node, method, (of,))
        called = self.value(scope, node.func)
        if isinstance(called, BlockNamed):
            special = getattr(self, f"_p_{called.name}", None)
            if special is not None:
                return self._by(scope, node, special, ())
            return self._block(scope, node, called.name)
        if isinstance(called, Inline):
            return self.inline(scope, called, self.given(scope, node)[0])
        function = called_function(called)
        if function is not None:
            return self.own(scope, node, called)
        name = getattr(called.value, "__name__", "") if isinstance(called, Known) else ""
        builtin = getattr(self, f"_builtin_{name}", None)
        if builtin is None or not isinstance(called, Known) or called.value not in BUILTINS:
            scope.refuse(node, f"calls what is not translated: {ast.unparse(node.func)}")
        return self._by(scope, node, builtin, ())

    def _by(
        self, scope: Scope, node: ast.Call, do: Callable[..., Value], before: tuple[Value, ...]
    ) -> Value:
        values, named = self.given(scope, node)
        try:
            inspect.signature(do).bind(scope, node, *before, *values, **named)
        except TypeError:
            scope.refuse(node, f"calls with other operands than known: {ast.unparse(node)}")
        return do(scope, node, *before, *values, **named)

    def given(self, scope: Scope, node: ast.Call) -> tuple[list[Value], dict[str, Value]]:
        """Operands of a call, and those that have names."""
        values: list[Value] = []
        for one in node.args:
            if isinstance(one, ast.Starred):
                scope.refuse(node, f"unpacks operands: {ast.unparse(node)}")
            values.append(self.text.short(self.value(scope, one)))
        named: dict[str, Value] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                scope.refuse(node, f"unpacks operands: {ast.unparse(node)}")
            named[keyword.arg] = self.text.short(self.value(scope, keyword.value))
        return values, named

    def _entry(self, scope: Scope, node: ast.AST, name: str, given: Given) -> Entry:
        plain, full = self.calls.plain.get(name), self.calls.full.get(name)
        if plain is None or full is None:
            scope.refuse(node, f"calls the block {name}, which is none")
        if not set(plain.names) <= given.keys() <= set(full.names):
            scope.refuse(node, f"calls {name} with other numbers than it needs")
        return plain if len(given) == len(plain.names) else full

    def _block(self, scope: Scope, node: ast.Call, name: str) -> Number:
        """Add a call to the log."""
        if len(node.args) == 1 and isinstance(node.args[0], ast.Starred):
            return self._block_of_all(scope, node, name, node.args[0].value)
        values, named = self.given(scope, node)
        return self._logged(scope, node, name, values, named)

    def _logged(
        self, scope: Scope, node: ast.AST, name: str, values: Sequence[Value], named: Given
    ) -> Number:
        entry = self._entry(scope, node, name, named)
        if entry.n_args not in (COUNTED, len(values)):
            scope.refuse(node, f"calls {name} with {len(values)} operands")
        texts = [operand_of(scope, node, value) for value in values]
        numbers = [
            operand_of(scope, node, named[n]) if n in named else str(NO_NUMBER) for n in entry.names
        ]
        counted = [str(len(values))] if entry.n_args == COUNTED else []
        self.log(str(entry.kind), *counted, *texts, *numbers)
        return self._new_vertex()

    def _new_vertex(self) -> Number:
        found = self.temporary("int", "n")
        self.text.add("n += 1")
        return found

    def log(self, *entries: str) -> None:
        """Add entries; those that are not known now are looked at: they must have 32 bits."""
        self.text.now.n_log += len(entries)
        for k, entry in enumerate(entries):
            self.text.add(f"log[n_log + {k}] = {entry}")
        open_ones = [entry for entry in entries if not SHORT.fullmatch(entry)]
        if open_ones:
            self.text.add(f"odd |= {' | '.join(f'(({e} + 2**31) >> 32)' for e in open_ones)}")
        self.text.add(f"n_log += {len(entries)}")

    def _block_of_all(self, scope: Scope, node: ast.Call, name: str, of: ast.expr) -> Number:
        """A call on all items of a list."""
        found = self.value(scope, of)
        _, named = self.given(scope, ast.Call(node.func, [], node.keywords))
        entry = self._entry(scope, node, name, named)
        if isinstance(found, Several):
            return self._logged(scope, node, name, found.items, named)
        if not isinstance(found, ListAt):
            scope.refuse(node, f"unpacks operands of {name} from something else than a list")
        n = self.temporary("int", f"lists[{found.text}, 1]").text
        self.text.restartable()
        self.text.needs("log", n)
        if entry.n_args == COUNTED:
            self.log(str(entry.kind), n)
        else:
            self.text.add(f"if {n} != {entry.n_args}:", "    raise ValueError('other operands')")
            self.log(str(entry.kind))
        self.text.add(f"odd |= pack(log, n_log, lists, items, {found.text})", f"n_log += {n}")
        numbers = [
            operand_of(scope, node, named[n]) if n in named else str(NO_NUMBER) for n in entry.names
        ]
        if numbers:
            self.log(*numbers)
        return self._new_vertex()

    def _p_chain(
        self, scope: Scope, node: ast.Call, block: Value, first: Value, n: Value, **numbers: Value
    ) -> Span:
        if not isinstance(block, BlockNamed):
            scope.refuse(node, "chains something else than a block")
        entry = self._entry(scope, node, block.name, numbers)
        times = self.whole(scope, node, n)
        self.text.restartable()
        self.text.needs("log", f"{len(entry.names)} * max(0, {times})")
        for value in numbers.values():
            if not isinstance(value, ListAt | ArrayAt):
                scope.refuse(node, "chains with something else than lists of numbers")
            self.text.add(
                f"if lists[{value.text}, 1] != {times}:", "    raise ValueError('other numbers')"
            )
        begin = self.temporary("int", "n").text
        done, behind = self.text.new(), self.text.new()
        self.text.fork(f"{times} > 0", done, behind)
        self.text.current = done
        self.log(str(CHAIN), str(entry.kind), times, operand_of(scope, node, first))
        for name in entry.names:
            given = numbers.get(name)
            if isinstance(given, ListAt | ArrayAt):
                self.text.add(f"odd |= pack(log, n_log, lists, items, {given.text})")
            else:
                self.text.add(f"log[n_log : n_log + {times}] = {NO_NUMBER}")
            self.text.add(f"n_log += {times}")
        self.text.add(f"n += {times}")
        self.text.at(behind)
        return Span(begin, self.temporary("int", "n").text)

    def _p_stage(self, scope: Scope, node: ast.Call) -> Number:
        self.text.now.n_log += 1
        self.text.add("if has_phases:", f"    log[n_log] = {PHASE}", "    n_log += 1")
        return NOTHING

    def _p_ghosts(self, scope: Scope, node: ast.Call, n: Value) -> Number:
        times = self.whole(scope, node, n)
        self.text.now.n_log += 2
        self.text.add(
            f"if {times} < 0:", "    raise ValueError('ghosts below 0')", "if has_ghosts:",
            f"    log[n_log] = {GHOSTS}", f"    log[n_log + 1] = {times}",
            f"    odd |= ({times} + 2**31) >> 32", "    n_log += 2",
        )  # fmt: skip
        return NOTHING

    def _p_concurrent(self, scope: Scope, node: ast.Call, *branches: Value) -> Several:
        found = []
        self.log(str(OPEN))
        for branch in branches:
            found.append(self.text.kept(self._applied(scope, node, branch, [])))
            self.log(str(BRANCH))
        self.log(str(CLOSE))
        return Several(tuple(found))

    def _p_map(self, scope: Scope, node: ast.Call, function: Value, *lists: Value) -> ListAt:
        found = self.long_list("4")
        self.log(str(OPEN))
        with self.loop(scope, node, Zipped(lists)) as items:
            assert isinstance(items, Several)
            one = self._applied(scope, node, function, items.items)
            self.append(found, self.item_of(scope, node, one))
            self.log(str(BRANCH))
        self.log(str(CLOSE))
        return found

    def _applied(
        self, scope: Scope, node: ast.Call, function: Value, values: Sequence[Value]
    ) -> Value:
        if isinstance(function, BlockNamed):
            return self._logged(scope, node, function.name, values, {})
        if isinstance(function, Inline):
            return self.inline(scope, function, values)
        scope.refuse(node, "runs side by side what is neither a block nor a lambda")

    @abstractmethod
    def loop(self, scope: Scope, node: ast.AST, over: Value) -> Any:
        """A context in which the body of a loop is written; gives the items of one step.

        Several are gone through side by side, and must be equally long.
        """

    def inline(self, scope: Scope, function: Inline, values: Sequence[Value]) -> Value:
        """The result of a lambda."""
        names = [one.arg for one in function.node.args.args]
        if len(names) != len(values):
            scope.refuse(function.node, "is called with another number of operands")
        inner = Scope(
            function.source, {**function.names, **dict(zip(names, values, strict=True))}, None
        )
        return self.value(inner, function.node.body)

    def own(self, scope: Scope, node: ast.Call, called: Value) -> Value:
        """The result of a function of the model, or beside it, that waits for nothing."""
        function = called_function(called)
        assert function is not None
        source = source_of(function)
        if source.waits:
            scope.refuse(node, f"calls {function.__name__}, which waits; use `yield from`")
        return self.inlined(scope, node, called)

    @abstractmethod
    def inlined(self, scope: Scope, node: ast.Call, called: Value) -> Value:
        """The result of a function whose text is written here."""
