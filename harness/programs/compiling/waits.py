"""What programs yield, as text of compiled code: numbers that they wait for, and forks."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.programs.compiling.arithmetic import perhaps
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
)
from harness.programs.compiling.values import (
    KEPT_LISTS,
    Inline,
    Number,
    Several,
    Span,
    TheWriter,
    Value,
    Zipped,
    kind_of,
)
from harness.programs.log import FORK, CallText


@dataclass(frozen=True, slots=True)
class Entry:
    """A function that fibers begin with. block: its first one. returns: whether ever a value."""

    called: Value
    parameters: tuple[Value, ...]
    block: int
    returns: bool


class Waits(Statements):
    """A method `_wait_NAME` for each request of a writer.

    entries: functions that fibers begin with, by function and kinds of operands. waiting: those
    whose text is not written yet.
    """

    def __init__(self, model: Any, constants: Constants, calls: CallText) -> None:
        super().__init__(model, constants, calls)
        self.entries: dict[tuple[Any, ...], Entry] = {}
        self.waiting: list[Entry] = []

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
        values, named = self.given(scope, node)
        if named or not values:
            scope.refuse(node, f"gives operands by name: {ast.unparse(node)}")
        of, *key = [self.item_of(scope, node, value) for value in values]
        self._until_there(of, ())
        state = f"seeds[S[{INSTANCE}]]"
        for part in key:
            state = f"mixed({state}, {part})"
        return self.temporary("float", f"drawn({state})")

    def _wait_value(self, scope: Scope, node: ast.Call) -> Number:
        state = node.args[1] if len(node.args) > 1 else None
        if not isinstance(state, ast.Constant) or not isinstance(state.value, str):
            scope.refuse(node, "asks for a state whose name is not written there, behind the value")
        if node.keywords:
            scope.refuse(node, f"gives operands by name: {ast.unparse(node)}")
        asked = [node.args[0], *(node.args[2:] or [ast.Constant(0)])]
        of, column = [self.temporary("int", self.integer(scope, one)).text for one in asked]
        place = self.text.slot("float")
        number = place.removeprefix("T[").removesuffix("]")
        entry = ("f", of, str(self.constants.state(state.value)), column, number)
        lines = [f"asked[n_asked, {k}] = {text}" for k, text in enumerate(entry)]
        self._until_there(of, (*lines, "n_asked += 1"))
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
        return Several(
            tuple(
                Number("int" if entry.returns else "maybe", slot)
                for (entry, _), slot in zip(branches, slots, strict=True)
            )
        )

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
        nones, names = source_of(function).nones, source_of(function).parameters[-len(values) :]
        parameters = [
            perhaps(value, may_be_none=name in nones)
            for name, value in zip(names, values, strict=False)
        ]
        if any(isinstance(value, Several | Span | Inline | Zipped) for value in values):
            scope.refuse(node, "gives a branch what is neither a number nor a list")
        key = (function, tuple(map(kind_of, parameters)))
        if key not in self.entries:
            places = tuple(map(_as_parameter, parameters))
            returns = source_of(function).ends_with_a_value
            self.entries[key] = Entry(called, places, self.text.new(), returns)
            self.waiting.append(self.entries[key])
        return self.entries[key], values

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
            elif isinstance(value, Number | KEPT_LISTS):
                self.text.add(f"F[{child}, {ints}] = {value.text}")
                ints += 1


def _as_parameter(value: Value) -> Value:
    """What stands for any value of its kind."""
    if isinstance(value, Number):
        return Number("int" if value.kind == "bool" else value.kind, "")
    return value
