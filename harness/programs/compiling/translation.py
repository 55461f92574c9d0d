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
from typing import Any, get_type_hints

from harness.programs.call_text import CallText
from harness.programs.compiling.constants import Constants
from harness.programs.compiling.expressions import called_function
from harness.programs.compiling.scopes import Scope, source_of
from harness.programs.compiling.statements import Statements
from harness.programs.compiling.texts import (
    FIRST_SLOT,
    INSTANCE,
    LEFT,
    NUMBER,
    PARENT,
    PC,
    RESULT,
    Lines,
)
from harness.programs.compiling.values import (
    NOTHING,
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
    kind_of,
)
from harness.programs.log import END, FORK


@dataclass(frozen=True, slots=True)
class Entry:
    """A function that fibers begin with. block: its first one."""

    called: Value
    parameters: tuple[Value, ...]
    block: int


@dataclass(frozen=True, slots=True)
class Translation:
    """blocks: of the text; the program begins with the first. n_slots, n_reals: of a frame."""

    blocks: Sequence[Lines]
    entries: tuple[int, ...]
    n_slots: int
    n_reals: int
    constants: Constants


class Translator(Statements):
    """Translates one model's program."""

    def __init__(self, model: Any, calls: CallText) -> None:
        super().__init__(model, Constants(), calls)
        self._entries: dict[tuple[Any, ...], Entry] = {}
        self._waiting: list[Entry] = []
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
        instance = get_type_hints(function).get(names[-1])
        if not isinstance(instance, type):
            raise NotTranslated(f"{source.file}:{source.line} says no class of {names[-1]}")
        root = Entry(called, (TheWriter(), TheInstance(instance)), self.text.current)
        self._write(root, is_root=True)
        while self._waiting:
            self._write(self._waiting.pop(), is_root=False)
        entries = (root.block, *(entry.block for entry in self._entries.values()))
        text = self.text
        return Translation(text.blocks, entries, text.most_slots, text.most_reals, self.constants)

    def _write(self, entry: Entry, *, is_root: bool) -> None:
        self.text.begin_frame()
        self.text.current = entry.block
        function = called_function(entry.called)
        assert function is not None
        source = source_of(function)
        parameters = [self.text.place_like(value) for value in entry.parameters]
        scope = Scope(source, self._bound(entry.called, source.node.args, parameters), None)
        self._is_root = is_root
        self._within.append(function)
        self.body(scope, source.node.body)
        self._end(scope, source.node, NOTHING)
        self._within.pop()

    def _bound(
        self, called: Value, arguments: ast.arguments, values: Sequence[Value]
    ) -> dict[str, Value]:
        """Names of parameters; a method's first one is the model."""
        assert isinstance(called, Known)
        names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            raise NotTranslated("a function takes any number of operands")
        if inspect.ismethod(called.value):
            values = [Known(called.value.__self__), *values]
        if len(names) != len(values):
            raise NotTranslated("a function is called with another number of operands")
        return dict(zip(names, values, strict=True))

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
        names = self._bound(called, source.node.args, values)
        for name in sorted(names.keys() & _assigned(source.node)):
            names[name] = self._variable(names[name])
        inner = Scope(source, names, self.text.new())
        self._within.append(function)
        self.body(inner, source.node.body)
        if not self.text.now.is_closed:
            self.returned(inner, ast.Return(), NOTHING)
        self._within.pop()
        assert inner.ends is not None
        self.text.current = inner.ends
        return NOTHING if inner.result is None else inner.result

    def _variable(self, value: Value) -> Value:
        """A parameter that is assigned to has a slot of its own."""
        place = self.text.place_like(value)
        self.text.stored(place, value)
        return place

    def returned(self, scope: Scope, node: ast.Return, value: Value) -> None:
        """See Statements."""
        if scope.ends is None:
            self._end(scope, node, value)
            return
        if scope.result is None:
            scope.result = self.text.place_like(value)
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
            scope.refuse(node, "returns something else than a vertex from a branch")
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

    def waited(self, scope: Scope, node: ast.Yield | ast.YieldFrom) -> Value:
        """See Expressions."""
        asked = node.value
        if not isinstance(asked, ast.Call):
            scope.refuse(node, f"yields what is not translated: {ast.unparse(node)}")
        if isinstance(node, ast.YieldFrom):
            called = self.value(scope, asked.func)
            function = called_function(called)
            if function is None or not source_of(function).waits:
                scope.refuse(node, f"yields from what is no generator: {ast.unparse(asked)}")
            return self.inlined(scope, asked, called)
        name = asked.func.attr if isinstance(asked.func, ast.Attribute) else ""
        is_writers = isinstance(asked.func, ast.Attribute) and isinstance(
            self.value(scope, asked.func.value), TheWriter
        )
        wait = getattr(self, f"_wait_{name}", None)
        if not is_writers or wait is None:
            scope.refuse(node, f"yields what is not translated: {ast.unparse(asked)}")
        found: Value = wait(scope, asked)
        return found

    def _wait_chance(self, scope: Scope, node: ast.Call) -> Number:
        values, _ = self.given(scope, node)
        of, *key = [self._integer_of(scope, node, value) for value in values]
        self._until_there(of, ())
        state = f"seeds[S[{INSTANCE}]]"
        for part in key:
            state = f"mixed({state}, {part})"
        return self.temporary("float", f"drawn({state})")

    def _wait_value(self, scope: Scope, node: ast.Call) -> Number:
        state = node.args[1] if len(node.args) > 1 else None
        if not isinstance(state, ast.Constant) or not isinstance(state.value, str):
            scope.refuse(node, "asks for a state whose name is not written there")
        of = self.text.kept(self.value(scope, node.args[0]))
        column = self.value(scope, node.args[2]) if len(node.args) > 2 else Number("int", "0")
        place = self.text.slot("float")
        number = place.removeprefix("T[").removesuffix("]")
        entry = ("f", self._integer_of(scope, node, of), str(self.constants.state(state.value)),
                 self._integer_of(scope, node, self.text.kept(column)), number)  # fmt: skip
        lines = [f"asked[n_asked, {k}] = {text}" for k, text in enumerate(entry)]
        self._until_there(entry[1], (*lines, "n_asked += 1"))
        return Number("float", place)

    def _until_there(self, of: str, asks: Sequence[str]) -> None:
        """Wait for a vertex of this round; for one that was computed, only where a number is asked
        for."""
        behind = self.text.new()
        self.text.add(
            f"if {of} < 0 or {of} >= n:",
            "    raise IndexError('no such vertex')",
            *asks,
            f"if {of} >= first_of_round:",
            f"    S[{PC}] = {self.text.goes(behind)}",
            "    waiting[n_waiting] = f",
            "    n_waiting += 1",
            "    f = -1",
            "    continue",
        )
        if asks:
            self.text.stop(f"pc, code = {self.text.goes(behind)}, ASKED", "break")
        self.text.jump(behind)
        self.text.current = behind

    def _wait_fork(self, scope: Scope, node: ast.Call) -> Several:
        branches = [self._branch(scope, one) for one in node.args]
        if not branches:
            return Several(())
        slots = [self.text.slot("int") for _ in branches]
        behind, n = self.text.new(), len(branches)
        self.text.restartable()
        self.text.add(
            f"if n_frames + {n} > len(F):", f"    want, code = {n}, MORE_FRAMES", "    break"
        )
        for k, (entry, values) in enumerate(branches):
            self._make_fiber(k, entry, values, slots[k])
        self.text.add(f"S[{LEFT}], S[{PC}] = {n}, {self.text.goes(behind)}")
        self.log(str(FORK), "n_fibers", str(n))
        self.text.add("running = n_fibers", f"n_fibers += {n}", f"n_alive += {n}")
        self.text.add("if n_alive > most_alive:", "    raise OverflowError('too many fibers')")
        for k in reversed(range(n)):
            self.text.add(f"ready[n_ready] = c{k}", "n_ready += 1")
        self.text.stop("f = -1", "continue")
        self.text.current = behind
        return Several(tuple(Number("int", slot) for slot in slots))

    def _branch(self, scope: Scope, node: ast.expr) -> tuple[Entry, list[Value]]:
        """The function of a branch, and what it is called with."""
        called = self.value(scope, node.func) if isinstance(node, ast.Call) else None
        function = None if called is None else called_function(called)
        if function is None or called is None or not source_of(function).waits:
            scope.refuse(node, f"forks what is no generator: {ast.unparse(node)}")
        assert isinstance(node, ast.Call)
        values, named = self.given(scope, node)
        if named:
            scope.refuse(node, f"gives operands by name: {ast.unparse(node)}")
        if any(isinstance(value, Several | Span | Inline) for value in values):
            scope.refuse(node, "gives a branch what is neither a number nor a list")
        key = (function, tuple(map(kind_of, values)))
        if key not in self._entries:
            self._entries[key] = Entry(called, tuple(map(_as_parameter, values)), self.text.new())
            self._waiting.append(self._entries[key])
        return self._entries[key], values

    def _make_fiber(self, k: int, entry: Entry, values: Sequence[Value], slot: str) -> None:
        child, ints, reals = f"c{k}", FIRST_SLOT, 0
        self.text.add(
            "if n_free > 0:",
            "    n_free -= 1",
            f"    {child} = free[n_free]",
            "else:",
            f"    {child} = n_frames",
            "    n_frames += 1",
            f"F[{child}, {PC}] = {self.text.goes(entry.block)}",
            f"F[{child}, {NUMBER}] = n_fibers + {k}",
            f"F[{child}, {INSTANCE}], F[{child}, {PARENT}] = S[{INSTANCE}], f",
            f"F[{child}, {RESULT}] = {slot.removeprefix('S[').removesuffix(']')}",
        )
        for value in values:
            if isinstance(value, Number) and value.kind == "float":
                self.text.add(f"R[{child}, {reals}] = {value.text}")
                reals += 1
            elif isinstance(value, Number | ListAt | DictAt):
                self.text.add(f"F[{child}, {ints}] = {value.text}")
                ints += 1

    @staticmethod
    def _integer_of(scope: Scope, node: ast.AST, value: Value) -> str:
        if not isinstance(value, Number) or value.kind == "float":
            scope.refuse(node, f"needs integers: {ast.unparse(node)}")
        return value.text


def _as_parameter(value: Value) -> Value:
    """What stands for any value of its kind."""
    if isinstance(value, Number):
        return Number("float" if value.kind == "float" else "int", "")
    return value


def _assigned(function: ast.FunctionDef) -> set[str]:
    """Names that a function sets."""
    names = (node for node in ast.walk(function) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}
