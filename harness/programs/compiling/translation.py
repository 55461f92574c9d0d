"""A program that waits, translated: fibers as frames of numbers that one loop goes through.

What a function keeps across a wait is in its frame, and where it goes on is the number of a basic
block there; functions that are not forked are written where they are called. Requests do what
harness.programs.fibers does for Python's generators, in the same order: the log is the same.

Source: ACRoBat (MLSys 2024, section 6) compiles programs ahead of time; its text does not say how.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.programs.compiling.arithmetic import perhaps
from harness.programs.compiling.constants import Constants
from harness.programs.compiling.expressions import called_function
from harness.programs.compiling.scopes import Scope, Source, hints_of, source_of
from harness.programs.compiling.texts import (
    INSTANCE,
    LEFT,
    NUMBER,
    PARENT,
    RESULT,
    Lines,
)
from harness.programs.compiling.values import (
    NOTHING,
    Inline,
    Known,
    ListAt,
    NotTranslated,
    Number,
    Several,
    TheInstance,
    TheWriter,
    Value,
)
from harness.programs.compiling.waits import Entry, Waits
from harness.programs.log import END, CallText


@dataclass(frozen=True, slots=True)
class Translation:
    """blocks: of the text; the program begins with the first. n_slots, n_reals: of a frame."""

    blocks: Sequence[Lines]
    entries: tuple[int, ...]
    n_slots: int
    n_reals: int
    constants: Constants


class Translator(Waits):
    """Translates one model's program."""

    def __init__(self, model: Any, calls: CallText) -> None:
        super().__init__(model, Constants(), calls)
        self._within: list[Any] = []  # functions that are being written

    def translate(self, program: Callable[..., Any]) -> Translation:
        """Raises NotTranslated for what is not known here."""
        called = Known(program)
        function = called_function(called)
        if function is None:
            raise NotTranslated(f"{program!r} is no function of Python's")
        source = source_of(function)
        names = [one.arg for one in source.node.args.args][-2:]
        if not source.waits:
            raise NotTranslated(f"{source.file}:{source.line} waits for nothing")
        instance = hints_of(function).get(names[-1])
        if not isinstance(instance, type):
            source.refuse(
                source.node, f"lacks the class of {names[-1]}: write `{names[-1]}: Chain`, say"
            )
        root = Entry(called, (TheWriter(), TheInstance(instance)), self.text.current, returns=True)
        self._write(root, is_root=True)
        while self.waiting:
            self._write(self.waiting.pop(), is_root=False)
        entries = (root.block, *(entry.block for entry in self.entries.values()))
        text = self.text
        return Translation(text.blocks, entries, text.most_slots, text.most_reals, self.constants)

    def _write(self, entry: Entry, *, is_root: bool) -> None:
        self.text.begin_frame()
        self.text.current = entry.block
        function = called_function(entry.called)
        assert function is not None
        source = source_of(function)
        parameters = [self.text.place_like(value) for value in entry.parameters]
        scope = Scope(source, self._bound(entry.called, source, parameters), None)
        self._is_root = is_root
        self._within.append(function)
        self.body(scope, source.node.body)
        self._end(scope, source.node, NOTHING)
        self._within.pop()

    @staticmethod
    def _bound(called: Value, source: Source, values: Sequence[Value]) -> dict[str, Value]:
        """Names of parameters; a method's first one is the model."""
        assert isinstance(called, Known)
        arguments, name = source.node.args, source.node.name
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            source.refuse(source.node, f"{name} takes any number of operands, or some by name")
        if inspect.ismethod(called.value):
            values = [Known(called.value.__self__), *values]
        if len(source.parameters) != len(values):
            source.refuse(source.node, f"{name} is called with another number of operands")
        return dict(zip(source.parameters, values, strict=True))

    def inlined(self, scope: Scope, node: ast.Call, called: Value) -> Value:
        """See Calls: its names are its own, and what it returns is left in slots."""
        function = called_function(called)
        assert function is not None
        if function in self._within:
            scope.refuse(node, f"calls {function.__name__}, which calls itself; fork it")
        source = source_of(function)
        values, named = self.given(scope, node)
        if named:
            scope.refuse(node, f"gives operands by name: {ast.unparse(node)}")
        names = self._bound(called, source, values)
        for name in sorted(names.keys() & source.assigned):
            names[name] = self._variable(names[name], may_be_none=name in source.nones)
        inner = Scope(source, names, self.text.new())
        self._within.append(function)
        self.body(inner, source.node.body)
        if not self.text.now.is_closed:
            self.returned(inner, ast.Return(), NOTHING)
        self._within.pop()
        assert inner.ends is not None
        self.text.current = inner.ends
        return NOTHING if inner.result is None else inner.result

    def _variable(self, value: Value, *, may_be_none: bool) -> Value:
        """A parameter that is assigned to has a slot of its own."""
        place = self.text.place_like(perhaps(value, may_be_none=may_be_none))
        self.text.stored(place, value)
        return place

    def returned(self, scope: Scope, node: ast.Return, value: Value) -> None:
        """See Statements."""
        if scope.ends is None:
            self._end(scope, node, value)
            return
        if _has_lambda(value):
            scope.refuse(node, "returns a lambda")
        if scope.result is None:
            kind = perhaps(value, may_be_none=scope.source.returns_none)
            scope.result = self.text.place_like(kind)
        try:
            self.text.stored(scope.result, value)
        except NotTranslated:
            scope.refuse(node, "returns values of several kinds")
        self.text.jump(scope.ends)

    def _end(self, scope: Scope, node: ast.AST, value: Value) -> None:
        """A fiber has ended."""
        if self.text.now.is_closed:
            return
        if self._is_root:
            if not isinstance(value, ListAt):
                value = self.listed(scope, node, Several((value,)))
            self.text.stop(
                f"results[S[{INSTANCE}]] = {value.text}", "n_alive -= 1", "f = -1", "continue"
            )
            return
        if not isinstance(value, Number) or value.kind == "float":
            scope.refuse(node, "returns something else than a vertex from a branch, or nothing")
        self.text.now.n_log += 2
        self.text.stop(
            f"c = S[{PARENT}]",
            f"F[c, S[{RESULT}]] = {value.text}",
            f"log[n_log], log[n_log + 1] = {END}, F[c, {NUMBER}]",
            "n_log += 2",
            "n_alive -= 1",
            "free[n_free] = f",
            "n_free += 1",
            f"F[c, {LEFT}] -= 1",
            f"if F[c, {LEFT}] == 0:",
            "    ready[n_ready] = c",
            "    n_ready += 1",
            "f = -1",
            "continue",
        )


def _has_lambda(value: Value) -> bool:
    """Whether it reads variables of a function that has ended."""
    items = value.items if isinstance(value, Several) else ()
    return isinstance(value, Inline) or any(map(_has_lambda, items))
