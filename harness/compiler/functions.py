"""Translation of functions to LLVM IR: names and statements; expressions.py has the rest.

Every name has a fixed kind from its first assignment on. Variables are on the stack, and LLVM moves
them to registers. A call of another function compiles that function once for the kinds of the
arguments.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llvmlite import ir

from dynbatch.harness.compiler.arithmetic import Arithmetic
from dynbatch.harness.compiler.expressions import Expressions
from dynbatch.harness.compiler.kinds import (
    INT,
    NOTHING,
    WORD,
    Array,
    Value,
    list_registers,
    put_together,
    take_apart,
)
from dynbatch.harness.compiler.registry import APART, find_definition
from dynbatch.harness.errors import CompileError

_NO_PLAIN_FUNCTION = (
    inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
)
ERROR = "error"  # a module's word: number of the raised error, counted from 1


@dataclass(slots=True)
class Translated:
    """Function of a module, with the kind of its result, and True if it can raise an error."""

    function: Any
    returned: Any
    raises: bool


@dataclass(slots=True)
class IRModule:
    """Contents of one object file: functions by Python function and kinds, and raised errors."""

    ir: Any = field(default_factory=ir.Module)
    translated: dict[Any, Translated | None] = field(default_factory=dict)
    errors: list[tuple[type[Exception], str]] = field(default_factory=list)

    def translate(
        self, function: Callable[..., Any], kinds: tuple[Any, ...], fast: tuple[str, ...]
    ) -> Translated:
        """Return a function for arguments of these kinds.

        Raises:
            CompileError: for unsupported code; the message names the line.
        """
        key = (function, kinds)
        if key not in self.translated:
            self.translated[key] = None
            writer = FunctionWriter(self, function, kinds, fast)
            try:
                self.translated[key] = writer.write()
            except CompileError as error:
                raise writer.locate(error) from error
            except Exception as error:  # of the function's static code, or of the compiler
                text = f"{type(error).__name__}: {error}"
                raise writer.locate(CompileError(text)) from error
        translation = self.translated[key]
        if translation is None:
            raise CompileError(f"{function.__name__} calls itself; use a loop")
        return translation

    def reserve_words(self, name: str, n: int = 1) -> Any:
        """Return the address of n words that belong to the module and start as zeros."""
        if name not in self.ir.globals:
            kind = ir.ArrayType(WORD, n)
            variable = ir.GlobalVariable(self.ir, kind, name)
            variable.initializer, variable.linkage = ir.Constant(kind, None), "internal"
        return self.ir.globals[name].bitcast(WORD.as_pointer())

    def number_error(self, kind: type[Exception], text: str) -> int:
        """Return the number of an error, from 1."""
        if (kind, text) not in self.errors:
            self.errors.append((kind, text))
        return self.errors.index((kind, text)) + 1

    def declare(self, name: str, returned: Any, *arguments: Any) -> Any:
        """Return a function that is linked when the module is loaded."""
        if name not in self.ir.globals:
            ir.Function(self.ir, ir.FunctionType(returned, arguments), name)
        return self.ir.globals[name]


class FunctionWriter(Expressions):
    """Writer of one function for arguments of given kinds."""

    def __init__(
        self, module: IRModule, function: Callable[..., Any], kinds: tuple[Any, ...],
        fast: tuple[str, ...],
    ) -> None:  # fmt: skip
        self.module, self.function = module, function
        self.node: Any = None
        self.kinds = kinds
        name = f"{function.__name__}.{len(module.translated)}.{len(module.ir.globals)}"
        registers = [register for kind in kinds for register in list_registers(kind)]
        self.ir = ir.Function(module.ir, ir.FunctionType(ir.VoidType(), registers), name)
        self.ir.linkage = "internal"
        if function in APART:
            self.ir.attributes.add("noinline")
        self.entry = self.ir.append_basic_block("entry")
        self.body = self.ir.append_basic_block("body")
        self.builder = ir.IRBuilder(self.body)
        self.arithmetic = Arithmetic(self.builder, fast)
        self.variables: dict[str, tuple[Any, list[Any]]] = {}
        self.loops: list[tuple[Any, Any]] = []
        self.returned: Any = None
        self.results: list[Any] = []
        self.end = self.exit = self.ir.append_basic_block("end")
        self.begins = [self.body]
        self.raises = False

    def locate(self, error: CompileError) -> CompileError:
        """Return an error with the line of the last statement, or with that of the call."""
        line = getattr(self.node, "lineno", self.function.__code__.co_firstlineno)
        location = f"{self.function.__code__.co_filename}, line {line}"
        if error.location:
            return CompileError(f"{error}; called in {location}", error.location)
        return CompileError(f"{location}, is not compiled: {error}", location)

    def write(self) -> Translated:
        """Write the whole function."""
        code, registers = self.function.__code__, iter(self.ir.args)
        if code.co_flags & _NO_PLAIN_FUNCTION:
            raise CompileError("a compiled function cannot have *arguments, await or yield")
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        for name, kind in zip(names, self.kinds, strict=True):
            self.assign_name(name, put_together(kind, registers))
        self.write_body()
        ir.IRBuilder(self.entry).branch(self.body)
        self._return()
        return Translated(self.ir, self.returned, self.raises)

    def write_body(self) -> None:
        """Write all statements of the function, and an implicit return after the last one."""
        self.write_all(find_definition(self.function).body)
        if not self.builder.block.is_terminated:
            if self.returned in (None, NOTHING):
                self.emit_return(None)
            elif self._is_reached(self.builder.block):
                raise CompileError("a path through the function has no return")
            else:
                self.builder.unreachable()

    def _is_reached(self, block: Any) -> bool:
        reached = list(self.begins)
        for reached_block in reached:
            targets = reached_block.terminator.operands if reached_block.terminator else ()
            reached += [to for to in targets if isinstance(to, ir.Block) and to not in reached]
        return block in reached

    def _return(self) -> None:
        """Write the function's single return, of the values stored in its results."""
        types = [result.type.pointee for result in self.results]
        returned = ir.VoidType() if not types else ir.LiteralStructType(types)
        self.ir.ftype.return_type = self.ir.return_value.type = returned
        builder = ir.IRBuilder(self.end)
        if not types:
            builder.ret_void()
            return
        value = ir.Constant(returned, ir.Undefined)
        for k, result in enumerate(self.results):
            value = builder.insert_value(value, builder.load(result), k)
        builder.ret(value)

    def emit_return(self, value: Any) -> None:
        """Return a value; the first one in a function determines the kind of all."""
        value = self._fix_all(value)
        kind, registers = take_apart(value)
        if self.returned is None:
            self.returned = kind
            self.results = [self.allocate(register.type) for register in registers]
        self._store(self.returned, self.results, value)
        self.builder.branch(self.end)

    def allocate(self, kind: Any, *, clear: bool = False) -> Any:
        """Allocate a variable on the stack; clear: set it to zero before anything is stored."""
        builder = ir.IRBuilder(self.entry)
        builder.position_at_start(self.entry)
        variable = builder.alloca(kind)
        if clear:
            builder.store(ir.Constant(kind, None), variable)
        return variable

    def materialize(self, value: Any) -> Any:
        """Return a static number as a value, and anything else unchanged."""
        is_number = isinstance(value, bool | int | float | np.generic)
        return self.arithmetic.number(value) if is_number else value

    def assign_name(self, name: str, value: Any) -> None:
        """Assign a value to a name; its kind must be that of all earlier values."""
        value = self._fix_all(value)
        kind, registers = take_apart(value)
        if name not in self.variables:
            self.variables[name] = (
                kind,
                [self.allocate(register.type, clear=True) for register in registers],
            )
        known, places = self.variables[name]
        try:
            self._store(known, places, value)
        except CompileError as error:
            raise CompileError(f"{name} changes its type: {error}") from error

    def _fix_all(self, value: Any) -> Any:
        if isinstance(value, tuple):
            parts = [self._fix_all(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return self.materialize(value)

    def _store(self, kind: Any, places: list[Any], value: Any) -> None:
        for register, to in zip(take_apart(self.convert(value, kind))[1], places, strict=True):
            self.builder.store(register, to)

    def read_name(self, name: str) -> Any:
        """Return a variable's value."""
        kind, places = self.variables[name]
        return put_together(kind, iter([self.builder.load(pointer) for pointer in places]))

    def write_all(self, statements: list[ast.stmt]) -> None:
        """Write statements, up to one after which nothing can be reached."""
        for statement in statements:
            if self.builder.block.is_terminated:
                return
            self.node = statement
            name = f"write_{type(statement).__name__}"
            if not hasattr(self, name):
                raise CompileError(f"{type(statement).__name__} is not supported")
            getattr(self, name)(statement)

    def write_Expr(self, node: ast.Expr) -> None:
        """Write a call whose value is not used."""
        if not isinstance(node.value, ast.Constant):
            self.evaluate(node.value)

    def write_Pass(self, node: ast.Pass) -> None:
        """Write nothing."""

    def write_Return(self, node: ast.Return) -> None:
        """Write a return."""
        self.emit_return(None if node.value is None else self.evaluate(node.value))

    def write_Assign(self, node: ast.Assign) -> None:
        """Write an assignment."""
        value = self.evaluate(node.value)
        for target in node.targets:
            self.assign(target, value)

    def write_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Write an assignment, and ignore its annotation."""
        if node.value is not None:
            self.assign(node.target, self.evaluate(node.value))

    def write_AugAssign(self, node: ast.AugAssign) -> None:
        """Write an augmented assignment to a name or an element."""
        if isinstance(node.target, ast.Name):
            before, address = self.evaluate_Name(node.target), None
        elif isinstance(node.target, ast.Subscript):
            address = self.find_place(node.target)
            before = self.load(*address)
        else:
            raise CompileError("expected a name or an element as target")
        value = self.arithmetic.apply_operator(type(node.op), before, self.evaluate(node.value))
        if address is None:
            self.assign(node.target, value)
        else:
            self.store(*address, value)

    def assign(self, target: ast.expr, value: Any) -> None:
        """Assign to a name, an element, a part of an array, or several of these."""
        if isinstance(target, ast.Name):
            self.assign_name(target.id, value)
        elif isinstance(target, ast.Tuple):
            values = self.unpack(value, len(target.elts))
            for element, part in zip(target.elts, values, strict=True):
                self.assign(element, part)
        elif isinstance(target, ast.Subscript):
            self.store_at(target, value)
        else:
            raise CompileError(f"cannot assign to {type(target).__name__}")

    def write_If(self, node: ast.If) -> None:
        """Write a branch; a condition known at compile time selects one path then."""
        condition = self.evaluate_condition(node.test)
        if not isinstance(condition, Value):
            self.write_all(node.body if condition else node.orelse)
            return
        is_reached = False
        with self.builder.if_else(condition.ir) as branches:
            for branch, statements in zip(branches, (node.body, node.orelse), strict=True):
                with branch:
                    self.write_all(statements)
                    is_reached |= not self.builder.block.is_terminated
        if not is_reached:
            self.builder.unreachable()

    def write_While(self, node: ast.While) -> None:
        """Write a loop."""
        if node.orelse:
            raise CompileError("a loop cannot have an else")
        test = self.ir.append_basic_block("test")
        self.builder.branch(test)
        self.builder.position_at_end(test)
        condition = self.evaluate_condition(node.test)
        with self.write_loop(test) as (body, behind):
            if isinstance(condition, Value):
                self.builder.cbranch(condition.ir, body, behind)
            else:
                self.builder.branch(body if condition else behind)
            self.builder.position_at_end(body)
            self.write_all(node.body)

    @contextmanager
    def write_loop(self, test: Any, go_on: Any = None) -> Iterator[tuple[Any, Any]]:
        """Write a loop around the body of this context; it continues at `go_on` or at its test."""
        body, behind = self.ir.append_basic_block("loop"), self.ir.append_basic_block("behind")
        self.loops.append((go_on or test, behind))
        yield body, behind
        self.loops.pop()
        if not self.builder.block.is_terminated:
            self.builder.branch(go_on or test)
        self.builder.position_at_end(behind)

    def write_For(self, node: ast.For) -> None:
        """Write a loop over a range or an array, or one copy of the body per element of a tuple."""
        if node.orelse:
            raise CompileError("a loop cannot have an else")
        match node.iter:
            case ast.Call(func=ast.Name() as called) if self.evaluate(called) is range:
                self._count(node, [self.evaluate(argument) for argument in node.iter.args])
                return
        over = self.evaluate(node.iter)
        if isinstance(over, Array):
            self._count(node, [Value(INT, over.shape[0])], over)
        elif isinstance(over, tuple):
            self._repeat(node, over)
        else:
            raise CompileError("expected a range, an array or a tuple in a loop")

    def _count(self, node: ast.For, bounds: list[Any], over: Array | None = None) -> None:
        if not 1 <= len(bounds) <= 3:
            raise CompileError("expected 1 to 3 arguments of range")
        begin, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if not isinstance(step, Value) and step == 0:
            raise CompileError("the step of a range must not be 0")
        begin, end, step = (self.arithmetic.convert(bound, INT) for bound in (begin, end, step))
        counter = self.allocate(WORD)
        self.builder.store(begin.ir, counter)
        test, following = self.ir.append_basic_block("test"), self.ir.append_basic_block("next")
        self.builder.branch(test)
        self.builder.position_at_end(test)
        number = Value(INT, self.builder.load(counter))
        goes_on = self.builder.select(
            self.builder.icmp_signed(">", step.ir, WORD(0)),
            self.builder.icmp_signed("<", number.ir, end.ir),
            self.builder.icmp_signed(">", number.ir, end.ir),
        )
        with self.write_loop(test, following) as (body, behind):
            self.builder.cbranch(goes_on, body, behind)
            self.builder.position_at_end(body)
            self.assign(node.target, number if over is None else self.index(over, [number]))
            self.write_all(node.body)
        builder = ir.IRBuilder(following)
        builder.store(builder.add(number.ir, step.ir), counter)
        builder.branch(test)

    def _repeat(self, node: ast.For, values: Iterable[Any]) -> None:
        behind = self.ir.append_basic_block("behind")
        for value in values:
            following = self.ir.append_basic_block("next")
            self.loops.append((following, behind))
            self.assign(node.target, value)
            self.write_all(node.body)
            self.loops.pop()
            if not self.builder.block.is_terminated:
                self.builder.branch(following)
            self.builder.position_at_end(following)
        self.builder.branch(behind)
        self.builder.position_at_end(behind)

    def write_Break(self, node: ast.Break) -> None:
        """Leave the innermost loop."""
        self.builder.branch(self.loops[-1][1])

    def write_Continue(self, node: ast.Continue) -> None:
        """Continue the innermost loop."""
        self.builder.branch(self.loops[-1][0])

    def write_Raise(self, node: ast.Raise) -> None:
        """Record the error's number, and return."""
        parts = [node.exc.func, *node.exc.args] if isinstance(node.exc, ast.Call) else []
        kind, *texts = map(self.evaluate, parts or [ast.Constant(None)])
        is_error = isinstance(kind, type) and issubclass(kind, Exception)
        is_known = is_error and getattr(builtins, kind.__name__, None) is kind
        expected = "expected a built-in exception with one constant text"
        if not is_known or len(texts) != 1 or not isinstance(texts[0], str):
            raise CompileError(expected)
        try:
            kind(texts[0])
        except TypeError as error:  # it needs more arguments, as ExceptionGroup does
            raise CompileError(expected) from error
        number = self.module.number_error(kind, texts[0])
        self.builder.store(WORD(number), self.module.reserve_words(ERROR))
        self.raises = True
        self.builder.branch(self.exit)

    def leave_if_raised(self) -> None:
        """Return if the last called function has raised an error."""
        self.raises = True
        error = self.builder.load(self.module.reserve_words(ERROR))
        is_raised = self.builder.icmp_signed("!=", error, WORD(0))
        with self.builder.if_then(is_raised, likely=False):
            self.builder.branch(self.exit)

    def call(
        self, function: Callable[..., Any], *arguments: Any, fast: tuple[str, ...] = ()
    ) -> Any:
        """Write a call of a function that is compiled for these arguments."""
        values = [self._fix_all(value) for value in arguments]
        parts = [take_apart(value) for value in values]
        known = self.module.translate(function, tuple(kind for kind, _ in parts), fast)
        registers = [value for _, own in parts for value in own]
        result = self.builder.call(known.function, registers)
        if known.raises:
            self.leave_if_raised()
        if known.returned in (None, NOTHING):
            return None
        n = len(list_registers(known.returned))
        return put_together(
            known.returned, iter([self.builder.extract_value(result, k) for k in range(n)])
        )
