"""Function writer whose variables are in a fiber's frame, so that functions can wait and resume.

Registers are lost when a fiber waits. LLVM rejects code that uses one after a wait, and Python then
runs the program.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NoReturn

from llvmlite import ir

from dynbatch.harness.compiler.arithmetic import Arithmetic, are_static, find_number_kind
from dynbatch.harness.compiler.functions import ERROR, FunctionWriter, IRModule, Translated
from dynbatch.harness.compiler.kinds import (
    BOOL,
    INT,
    INT32,
    NOTHING,
    WORD,
    Number,
    Value,
    put_together,
    take_apart,
)
from dynbatch.harness.compiler.registry import find_definition
from dynbatch.harness.errors import CompileError
from dynbatch.harness.programs.compiling import fibers, runtime

EXACT = 2**53  # floats represent all integers up to this one
_WITH_OVERFLOW: dict[type, str] = {ast.Add: "sadd", ast.Sub: "ssub", ast.Mult: "smul"}


@dataclass(frozen=True, slots=True)
class FiberEntry:
    """Function that fibers start with.

    Attributes:
        returns: True if it returns a value on any path.
    """

    function: FunctionType
    values: tuple[Any, ...]
    number: int
    block: Any
    returns: bool


class CheckedArithmetic(Arithmetic):
    """Arithmetic with Python's results or an error: integers never lose bits."""

    def __init__(self, writer: FrameWriter) -> None:
        super().__init__(writer.builder, ())
        self._writer = writer

    def compute_truth(self, value: Any) -> Any:
        """Return the truth value of a value."""
        return super().compute_truth(self._writer.to_condition(value))

    def apply_operator(self, operator_: type, a: Any, b: Any) -> Any:
        """Return the value of a binary operator."""
        if are_static(a, b):
            return super().apply_operator(operator_, a, b)
        kinds = {find_number_kind(a), find_number_kind(b)}
        if INT32 in kinds:
            raise CompileError("computes with a 32-bit number, which wraps; take int() of it")
        if operator_ in (ast.Div, ast.LShift, ast.RShift):
            raise CompileError(f"has an unsupported operator: {operator_.__name__}")
        if operator_ is ast.Mod and any(kind.is_float for kind in kinds):
            return self._writer.call(runtime.compute_remainder, a, b)
        return super().apply_operator(operator_, a, b)

    def convert(self, value: Any, kind: Number) -> Value:
        """Convert a number; an integer must stay exact as a float, as Python compares both."""
        if kind.is_float and find_number_kind(value) == INT:
            if not isinstance(value, Value) and abs(value) > EXACT:
                raise CompileError(f"combines {value} with floats")
            shifted = self.builder.add(self.number(value).ir, WORD(EXACT))
            is_fine = self.builder.icmp_unsigned("<=", shifted, WORD(2 * EXACT))
            self._writer.check(is_fine, OverflowError, "a number of more than 53 bits")
        return super().convert(value, kind)

    def negate(self, operator_: type, value: Any) -> Any:
        """Return the value of a unary operator."""
        is_whole = isinstance(value, Value) and not find_number_kind(value).is_float
        if operator_ is ast.USub and is_whole:
            return self.apply_operator(ast.Sub, 0, value)
        return super().negate(operator_, value)

    def _apply_plain(self, operator_: type, x: Value, y: Value) -> Value:
        if x.kind != INT:
            return super()._apply_plain(operator_, x, y)
        b = self.builder
        both = getattr(b, f"{_WITH_OVERFLOW[operator_]}_with_overflow")(x.ir, y.ir)
        is_fine = b.not_(b.extract_value(both, 1))
        self._writer.check(is_fine, OverflowError, "a number of more than 64 bits")
        return Value(INT, b.extract_value(both, 0))

    def _divide(self, operator_: type, x: Value, y: Value, divisor: Any) -> Value:
        if isinstance(divisor, Value) or divisor < 0:
            b = self.builder
            is_fine = b.icmp_unsigned("<", b.add(y.ir, WORD(1)), WORD(2))
            self._writer.check(b.not_(is_fine), ZeroDivisionError, "a division by 0 or -1")
        return super()._divide(operator_, x, y, divisor)


class FrameWriter(FunctionWriter):
    """Writer of all functions of fibers into one machine function, `fibers.resume`.

    Called functions are inlined.

    Attributes:
        known: variables that are set on every path to the current point.
        within: functions being written, the innermost last.
    """

    def __init__(self, module: IRModule, program: Callable[..., Any]) -> None:
        super().__init__(module, program, (INT, INT), ())
        self.arithmetic = CheckedArithmetic(self)
        self.state, self.fiber = (Value(INT, argument) for argument in self.ir.args)
        self.code = super().allocate(WORD)
        builder = ir.IRBuilder(self.entry)
        self._words = builder.inttoptr(self.state.ir, WORD.as_pointer())
        width = builder.mul(self.fiber.ir, self._load(builder, self._words, fibers.WIDTH))
        frames = builder.inttoptr(
            self._load(builder, self._words, fibers.FRAMES), WORD.as_pointer()
        )
        self._frame = builder.gep(frames, [width])
        self.builder.unreachable()
        self._switch = builder.switch(self._load(builder, self._frame, fibers.PC), self.body)
        self.begins = []
        self.n_slots = self.most_slots = fibers.FIRST_SLOT
        self.known: set[str] = set()
        self._ways: list[set[str] | None] = []
        self.within: list[Any] = []

    def locate(self, error: CompileError) -> CompileError:
        """Return an error with the line of the program that was written last."""
        if error.location:
            return error
        code = self.function.__code__
        line = getattr(self.node, "lineno", code.co_firstlineno)
        location = f"{code.co_filename.rpartition('/')[2]}:{line}"
        return CompileError(f"{location} {error}", location)

    def refuse(self, what: str, node: ast.AST | None = None) -> NoReturn:
        """Raise CompileError."""
        raise CompileError(what if node is None else f"{what}: {ast.unparse(node)}")

    # --- memory ------------------------------------------------------------------------------

    @staticmethod
    def _load(builder: Any, base: Any, at: int) -> Any:
        return builder.load(builder.gep(base, [WORD(at)]))

    def load_word(self, at: int) -> Value:
        """Return a word of the state."""
        return Value(INT, self._load(self.builder, self._words, at))

    def put_word(self, at: int, value: Value) -> None:
        """Write a word of the state."""
        self.builder.store(value.ir, self.builder.gep(self._words, [WORD(at)]))

    def put_frame_word(self, at: int, value: int) -> None:
        """Write a word of the frame."""
        self.builder.store(WORD(value), self.builder.gep(self._frame, [WORD(at)]))

    def load_frame_word(self, at: int) -> Value:
        """Return a word of the frame."""
        return Value(INT, self._load(self.builder, self._frame, at))

    def load_at(self, at: int, index: Any, kind: Number) -> Value:
        """Return an entry of a buffer whose address is a word of the state."""
        pointer = self.builder.inttoptr(self.load_word(at).ir, kind.ir.as_pointer())
        return Value(
            kind, self.builder.load(self.builder.gep(pointer, [self.materialize(index).ir]))
        )

    def allocate(self, kind: Any, *, clear: bool = False) -> Any:
        """Return a slot of the frame; in functions that do not wait, of the stack."""
        if self.within and not is_generator(self.within[-1]):
            return super().allocate(kind)
        builder = ir.IRBuilder(self.entry)
        builder.position_before(self._switch)
        slot = builder.gep(self._frame, [WORD(self.n_slots)])
        self.n_slots += 1
        self.most_slots = max(self.most_slots, self.n_slots)
        return builder.bitcast(slot, kind.as_pointer())

    def keep(self, value: Any) -> Callable[[], Any]:
        """Store a value in the frame; return a function that loads it, before and after a wait."""
        kind, registers = take_apart(self._fix_all(value))
        places = [self.allocate(item.type) for item in registers]
        for register, slot in zip(registers, places, strict=True):
            self.builder.store(register, slot)
        return lambda: put_together(kind, iter([self.builder.load(item) for item in places]))

    def reserve(self, at: int, n: Any) -> None:
        """Extend a buffer if it has fewer than n free entries."""
        n = self.materialize(n)
        used = self.builder.add(self.load_word(at + 1).ir, n.ir)
        lacks = self.builder.icmp_signed(">", used, self.load_word(at + 2).ir)
        with self.builder.if_then(lacks, likely=False):
            self.call_helper(fibers.grow, self.state, at, n)

    # --- errors and conversions --------------------------------------------------------------

    def check(self, is_fine: Any, kind: type[Exception], text: str) -> None:
        """Raise an error unless a condition holds."""
        self.raises = True
        number = self.module.number_error(kind, text)
        with self.builder.if_then(self.builder.not_(is_fine), likely=False):
            self.builder.store(WORD(number), self.module.reserve_words(ERROR))
            self.builder.branch(self.exit)

    def convert(self, value: Any, kind: Any) -> Any:
        """Convert a value to a kind with the same meaning in Python: an int is not a float."""
        if isinstance(kind, Number):
            own = find_number_kind(value)
            if own != kind and (own, kind) != (BOOL, INT):
                raise CompileError("assigns values of several types to a name")
        return super().convert(value, kind)

    def to_condition(self, value: Any) -> Any:
        """Return the number that determines the truth of a value."""
        is_number = isinstance(value, Value) and isinstance(value.kind, Number)
        if is_number or isinstance(value, bool | int | float) or value is None:
            return value
        raise CompileError("cannot be a condition")

    def to_integer(self, value: Any) -> Value:
        """Return an integer.

        Raises:
            CompileError: for any other value.
        """
        kind = value.kind if isinstance(value, Value) else None
        if isinstance(value, bool | int) or kind in (BOOL, INT):
            return self.arithmetic.convert(value, INT)
        if kind == INT32:
            raise CompileError("keeps a 32-bit number; take int() of it")
        raise CompileError("needs integers")

    # --- names -------------------------------------------------------------------------------

    def assign_name(self, name: str, value: Any) -> None:
        """Assign a value to a name."""
        try:
            super().assign_name(name, value)
        except CompileError as error:
            raise CompileError(f"assigns values of several types to a name: {name}") from error
        self.known.add(name)

    def evaluate_Name(self, node: ast.Name) -> Any:
        """Return the value of a variable that is set, or of a global name."""
        if node.id in self.variables and node.id not in self.known:
            raise CompileError(f"reads {node.id}, which is not set on every path")
        return super().evaluate_Name(node)

    def write_all(self, statements: list[ast.stmt]) -> None:
        """Write statements, and record the variables that they set on this path."""
        before = set(self.known)
        super().write_all(statements)
        self._ways.append(None if self.builder.block.is_terminated else self.known)
        self.known = before

    def write_If(self, node: ast.If) -> None:
        """Write a branch; variables that both paths set are known after it."""
        n_ways = len(self._ways)
        super().write_If(node)
        ways = [names for names in self._ways[n_ways:] if names is not None]
        del self._ways[n_ways:]
        self.known = set.intersection(*ways) if ways else self.known

    def write_While(self, node: ast.While) -> None:
        """Write a loop; variables that it sets are not known after it."""
        with self.forget_assignments():
            super().write_While(node)

    @contextmanager
    def forget_assignments(self) -> Iterator[None]:
        """Discard variables that are set within, as the code may not run."""
        known, n_ways = set(self.known), len(self._ways)
        yield
        self.known = known
        del self._ways[n_ways:]

    @contextmanager
    def own_names(self, names: Set[str]) -> Iterator[None]:
        """Give names a separate meaning within, as in a comprehension or a lambda."""
        hidden = {name: self.variables.pop(name) for name in names if name in self.variables}
        known = self.known
        self.known = known - names
        yield
        for name in names:
            self.variables.pop(name, None)
        self.variables |= hidden
        self.known = known

    def make_variable_like(self, value: Any) -> tuple[Any, list[Any]]:
        """Return a variable for values of this kind, without storing a value."""
        kind, registers = take_apart(value)
        return kind, [self.allocate(register.type) for register in registers]

    # --- functions ---------------------------------------------------------------------------

    def call_helper(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Write a call of a function in the compiler's language."""
        return FunctionWriter.call(self, function, *arguments)

    def inline(self, function: FunctionType, values: Sequence[Any], *, places: bool = False) -> Any:
        """Inline a function, and return its result.

        Args:
            places: True if the values are variables already.
        """
        names = self.list_parameters(function)
        if function in self.within:
            self.refuse(f"calls {function.__name__}, which is recursive; fork it")
        if len(names) != len(values):
            self.refuse(f"{function.__name__} is called with a wrong number of arguments")
        before = self.function, self.variables, self.end, self.results, self.returned, self.known
        node = self.node
        self.within.append(function)
        self.function, self.variables, self.results, self.returned = function, {}, [], None
        self.known, self.end = set(), self.ir.append_basic_block("end")
        if places:
            self.variables, self.known = dict(zip(names, values, strict=True)), set(names)
        else:
            for name, value in zip(names, values, strict=True):
                self.assign_name(name, value)
        self.write_body()
        self._ways.pop()
        self.builder.position_at_end(self.end)
        kind = NOTHING if self.returned is None else self.returned
        result = put_together(kind, iter([self.builder.load(pointer) for pointer in self.results]))
        self.within.pop()
        self.function, self.variables, self.end, self.results, self.returned, self.known = before
        self.node = node
        return result

    def list_parameters(self, function: FunctionType) -> Sequence[str]:
        """Return the names of a function's parameters.

        Raises:
            CompileError: for other than plain parameters, and for decorated functions and closures.
        """
        arguments = find_definition(function).args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            self.refuse(f"{function.__name__} has variadic or keyword-only parameters")
        if find_definition(function).decorator_list or function.__code__.co_freevars:
            self.refuse(f"{function.__name__} is not a plain function or method")
        return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]

    # --- waits -------------------------------------------------------------------------------

    def make_target(self) -> tuple[int, Any]:
        """Return a block at which fibers can resume, and its number in their frames."""
        number, block = len(self.begins), self.ir.append_basic_block("go_on")
        self._switch.add_case(WORD(number), block)
        self.begins.append(block)
        return number, block

    def stop(self, code: int, behind: Any = None) -> None:
        """Suspend the fiber, and continue writing at another block."""
        self.builder.store(WORD(code), self.code)
        self.builder.branch(self.exit)
        if behind is not None:
            self.builder.position_at_end(behind)

    def finish(self) -> None:
        """Write the end of the function, which is `fibers.resume` in its module."""
        self.end, self.results = self.exit, [self.code]
        self._return()
        key = fibers.resume, (INT, INT)
        self.module.translated[key] = Translated(self.ir, INT, True)

    def evaluate_all(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """Return the values of several expressions.

        An expression that waits is evaluated first, so only names and constants may precede it.
        """
        waiting = [k for k, node in enumerate(nodes) if has_wait(node)]
        for node in nodes[: waiting[-1]] if waiting else ():
            if not isinstance(node, ast.Name | ast.Constant):
                self.refuse("waits inside an expression", node)
        evaluated = {k: self.evaluate(nodes[k]) for k in waiting}
        return [
            evaluated[k] if k in evaluated else self.evaluate(expression)
            for k, expression in enumerate(nodes)
        ]

    def evaluate_Compare(self, node: ast.Compare) -> Any:
        """Return the value of a comparison."""
        if any(map(has_wait, node.comparators)):
            self.refuse("waits inside an expression", node)
        return super().evaluate_Compare(node)


def is_generator(function: Any) -> bool:
    """Return True if a function waits."""
    return inspect.isgeneratorfunction(function)


def has_wait(node: ast.AST) -> bool:
    """Return True if an expression waits."""
    return any(isinstance(child, ast.Yield | ast.YieldFrom) for child in ast.walk(node))


def has_return_value(function: FunctionType) -> bool:
    """Return True if a function returns values."""
    waiting: list[ast.AST] = list(find_definition(function).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            return not (isinstance(node.value, ast.Constant) and node.value.value is None)
        if not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False
