"""Requests of compiled programs to `p`: block calls and other logged events, waits and forks."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

from dynbatch.harness.compiler.functions import IRModule
from dynbatch.harness.compiler.kinds import BOOL, FLOAT, INT, INT32, UINT, WORD, Value
from dynbatch.harness.errors import CompileError
from dynbatch.harness.programs.blocks import COUNTED
from dynbatch.harness.programs.compiling import fibers, runtime
from dynbatch.harness.programs.compiling.constants import Constants, TheInstance, TheWriter
from dynbatch.harness.programs.compiling.frames import (
    FiberEntry,
    has_return_value,
    has_wait,
    is_generator,
)
from dynbatch.harness.programs.compiling.lists import (
    ARRAY,
    DICT,
    LIST,
    IntegerSpan,
    ListWriter,
    Zipped,
    is_kept,
)
from dynbatch.harness.programs.log import (
    BRANCH,
    CHAIN,
    CLOSE,
    GHOSTS,
    NO_NUMBER,
    OPEN,
    PHASE,
    CallText,
    LogEntry,
)

LONGEST = 2**31
NUMBERS = (BOOL, INT, FLOAT, INT32)


@dataclass(frozen=True, slots=True)
class Named:
    """Attribute of `p`: a block or a request."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Lambda:
    """Lambda, with the variables in its scope."""

    node: ast.Lambda
    variables: Mapping[str, Any]


class RequestWriter(ListWriter):
    """Writer of the requests of a program.

    Attributes:
        entries: functions that fibers start with, by function and kinds of operands.
        waiting: entries that are not written yet.
    """

    def __init__(
        self, module: IRModule, program: Callable[..., Any], calls: CallText, model: Any
    ) -> None:
        super().__init__(module, program)
        self.model = model
        self.calls, self.constants = calls, Constants()
        self.entries: dict[Any, FiberEntry] = {}
        self.waiting: list[FiberEntry] = []

    # --- names and calls ---------------------------------------------------------------------

    def evaluate_Attribute(self, node: ast.Attribute) -> Any:
        """Return a request, a field of the instance, or an attribute of the model."""
        owner = self.evaluate(node.value)
        if isinstance(owner, TheWriter):
            return Named(node.attr)
        if isinstance(owner, TheInstance):
            return self._load_field(owner.kind, node.attr)
        value: Any = getattr(owner, node.attr, None)
        if owner is self.model and type(value) in (bool, int, float):
            return self._load_model_number(node.attr, value)
        if owner is self.model and isinstance(value, MethodType | FunctionType):
            return value
        if owner is self.model:
            self.refuse(f"reads {ast.unparse(node)}, which is not a number")
        self.refuse("has an unsupported attribute", node)

    def _load_model_number(self, name: str, value: bool | float) -> Value:
        index, is_real = self.constants.index_model_number(name, value)
        at, kind = (fibers.REALS, FLOAT) if is_real else (fibers.INTS, INT)
        number = self.load_at(at, index, kind)
        return self.arithmetic.cast(number, BOOL) if isinstance(value, bool) else number

    def _load_field(self, kind: type, name: str) -> Value:
        index = self.constants.index_instance_field(kind, name)
        n, own = self.load_word(fibers.N_INSTANCES), self.load_frame_word(fibers.INSTANCE)
        return Value(ARRAY, self.builder.add(self.builder.mul(n.ir, WORD(index)), own.ir))

    def evaluate_Lambda(self, node: ast.Lambda) -> Lambda:
        """Return a function of one expression."""
        arguments = node.args
        if arguments.defaults or arguments.kwonlyargs or arguments.vararg or arguments.kwarg:
            self.refuse("has a lambda with parameters other than positional ones", node)
        return Lambda(node, self.variables)

    def _apply_lambda(self, called: Lambda, values: Sequence[Any]) -> Any:
        names = [argument.arg for argument in called.node.args.args]
        if called.variables is not self.variables or len(names) != len(values):
            self.refuse("calls a lambda of another function, or with wrong arguments")
        with self.own_names(set(names)):
            for name, value in zip(names, values, strict=True):
                self.assign_name(name, value)
            return self.evaluate(called.node.body)

    def evaluate_Call(self, node: ast.Call) -> Any:
        """Write a call of a block, request, list method, or function of the model or module."""
        if isinstance(node.func, ast.Attribute):
            receiver = self.evaluate(node.func.value)
            if is_kept(receiver, LIST, ARRAY, DICT):
                if node.keywords or any(map(has_wait, node.args)):
                    self.refuse("has keyword arguments, or arguments that wait", node)
                return self.call_list_method(receiver, node.func.attr, self.evaluate_all(node.args))
        called = self.evaluate(node.func)
        if isinstance(called, Named):
            match node.args:
                case [ast.Starred() as unpacked]:
                    return self._write_block_of_list(node, called.name, unpacked.value)
        values, named = self._evaluate_arguments(node)
        if isinstance(called, Named):
            return self._write_request(called.name, values, named)
        if isinstance(called, Lambda):
            return self._apply_lambda(called, values)
        bound, function = _split_method(called)
        if isinstance(function, FunctionType) and bound in (None, self.model):
            if named:
                self.refuse("has keyword arguments", node)
            if is_generator(function):
                self.refuse(f"calls {function.__name__}, which waits; use `yield from`")
            return self.inline(function, values if bound is None else [bound, *values])
        return self._call_builtin(node, called, values, named)

    def _evaluate_arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        keywords = [argument.arg for argument in node.keywords]
        if None in keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            self.refuse("unpacks arguments", node)
        n = len(node.args)
        values = self.evaluate_all([*node.args, *(argument.value for argument in node.keywords)])
        return values[:n], dict(zip(map(str, keywords), values[n:], strict=True))

    def _call_builtin(
        self, node: ast.Call, called: Any, values: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        match called, values:
            case _ if named:
                pass
            case builtins.len, [value]:
                return len(value) if type(value) is tuple else self.count_items(value)
            case builtins.range, [stop]:
                return IntegerSpan(self.to_integer(0), self.to_integer(stop))
            case builtins.range, [start, stop]:
                return IntegerSpan(self.to_integer(start), self.to_integer(stop))
            case builtins.int, [Value() as value] if value.kind == FLOAT:
                return self.call_helper(runtime.to_integer, value)
            case builtins.int, [value]:
                if isinstance(value, bool | int | float) or value.kind in NUMBERS:
                    return self.apply(called, [value], {})
        self.refuse("calls an unsupported function", node)

    # --- the log -----------------------------------------------------------------------------

    def log(self, *entries: Any) -> None:
        """Add entries; those not known at compile time are checked to have 32 bits."""
        numbers = [self._to_entry(entry) for entry in entries]
        self.reserve(fibers.LOG, len(numbers))
        log = self.builder.inttoptr(self.load_word(fibers.LOG).ir, INT32.ir.as_pointer())
        n_log = self.load_word(fibers.N_LOG)
        log = self.builder.gep(log, [n_log.ir])
        for k, entry in enumerate(numbers):
            self.builder.store(entry, self.builder.gep(log, [WORD(k)]))
        n_log = Value(INT, self.builder.add(n_log.ir, WORD(len(numbers))))
        self.put_word(fibers.N_LOG, n_log)

    def _to_entry(self, value: Any) -> Any:
        """Return an entry as 32 bits."""
        if isinstance(value, Value) and value.kind == INT32:
            return value.ir
        if not isinstance(value, bool | int | Value):
            raise CompileError("gives a block what is no integer")
        if not isinstance(value, Value) and -LONGEST <= value < LONGEST:
            return INT32.ir(int(value))
        whole, b = self.to_integer(value), self.builder
        short = b.trunc(whole.ir, INT32.ir)
        is_fine = b.icmp_signed("==", b.sext(short, WORD), whole.ir)
        self.check(is_fine, OverflowError, "expected a 32-bit number")
        return short

    def _find_entry(self, name: str, given: Mapping[str, Any]) -> LogEntry:
        plain, full = self.calls.plain.get(name), self.calls.full.get(name)
        if plain is None or full is None:
            raise CompileError(f"calls {name}, which is not a block")
        if not set(plain.names) <= given.keys() <= set(full.names):
            raise CompileError(f"calls {name} with the wrong external numbers")
        return plain if len(given) == len(plain.names) else full

    def _add_vertices(self, n: Any = 1) -> Value:
        first = self.load_word(fibers.N)
        self.put_word(fibers.N, Value(INT, self.builder.add(first.ir, self.materialize(n).ir)))
        return first

    def _write_request(self, name: str, values: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Write a request that does not wait, or the call of a block."""
        match name, values, dict(named):
            case "chain", [Named() as block, first, n], numbers:
                return self._write_chain(block.name, first, n, numbers)
            case "map", [function, *lists], {**rest} if not rest and lists:
                return self._write_map(function, tuple(lists))
            case "stage", [], {**rest} if not rest:
                has = self.arithmetic.compute_truth(self.load_word(fibers.HAS_PHASES))
                with self.builder.if_then(has.ir):
                    self.log(PHASE)
                return None
            case "ghosts", [n], {**rest} if not rest:
                return self._write_ghosts(self.to_integer(n))
            case "concurrent", _, _:
                self.refuse("runs branches by p.concurrent")
        return self._write_block(name, values, named)

    def _write_block(self, name: str, values: Sequence[Any], named: Mapping[str, Any]) -> Value:
        entry = self._find_entry(name, named)
        if entry.n_args not in (COUNTED, len(values)):
            raise CompileError(f"calls {name} with {len(values)} operands")
        counted = [len(values)] if entry.n_args == COUNTED else []
        numbers = [named.get(key, NO_NUMBER) for key in entry.names]
        self.log(entry.kind, *counted, *values, *numbers)
        return self._add_vertices()

    def _write_block_of_list(self, node: ast.Call, name: str, expression: ast.expr) -> Value:
        """Write a call whose operands are all items of a list."""
        operands = self.evaluate(expression)
        _, named = self._evaluate_arguments(ast.Call(node.func, [], node.keywords))
        if type(operands) is tuple:
            return self._write_block(name, operands, named)
        if not is_kept(operands, LIST):
            self.refuse(f"unpacks arguments of {name} that are not a list")
        entry, n = self._find_entry(name, named), self.count_items(operands)
        if entry.n_args == COUNTED:
            self.log(entry.kind, n)
        else:
            is_fine = self.builder.icmp_signed("==", n.ir, WORD(entry.n_args))
            self.check(is_fine, ValueError, "wrong number of operands")
            self.log(entry.kind)
        self.call_helper(runtime.pack, self.state, self.handle(operands))
        if entry.names:
            self.log(*(named.get(key, NO_NUMBER) for key in entry.names))
        return self._add_vertices()

    def _write_chain(
        self, name: str, first: Any, n: Any, numbers: Mapping[str, Any]
    ) -> IntegerSpan:
        entry, n = self._find_entry(name, numbers), self.to_integer(n)
        for value in numbers.values():
            if not is_kept(value, LIST, ARRAY):
                self.refuse("chains with operands that are not lists of numbers")
            is_fine = self.builder.icmp_signed("==", self.count_items(value).ir, n.ir)
            self.check(is_fine, ValueError, "expected one number per call")
        begin = self.load_word(fibers.N)
        with self.builder.if_then(self.builder.icmp_signed(">", n.ir, WORD(0))):
            self.log(CHAIN, entry.kind, n, first)
            for key in entry.names:
                if key in numbers:
                    self.call_helper(runtime.pack, self.state, self.handle(numbers[key]))
                else:
                    self.call_helper(runtime.pack_equal, self.state, NO_NUMBER, n)
            self._add_vertices(n)
        return IntegerSpan(begin, self.load_word(fibers.N))

    def _write_map(self, function: Any, lists: tuple[Any, ...]) -> Value:
        results = self.make_list(())
        self.check_lengths(lists)
        self.log(OPEN)
        with self.loop_over(Zipped(lists)) as items:
            self.append(results, self._apply_function(function, items))
            self.log(BRANCH)
        self.log(CLOSE)
        return results

    def _apply_function(self, function: Any, values: Sequence[Any]) -> Any:
        if isinstance(function, Named):
            return self._write_block(function.name, values, {})
        if isinstance(function, Lambda):
            return self._apply_lambda(function, values)
        raise CompileError("runs side by side what is neither a block nor a lambda")

    def _write_ghosts(self, n: Value) -> None:
        is_fine = self.builder.icmp_signed(">=", n.ir, WORD(0))
        self.check(is_fine, ValueError, "ghosts below 0")
        has = self.arithmetic.compute_truth(self.load_word(fibers.HAS_GHOSTS))
        with self.builder.if_then(has.ir):
            self.log(GHOSTS, n)

    # --- waits -------------------------------------------------------------------------------

    def evaluate_YieldFrom(self, node: ast.YieldFrom) -> Any:
        """Inline a generator."""
        function, values = self._evaluate_generator(node.value, "yields from")
        return self.inline(function, values)

    def _evaluate_generator(self, node: ast.expr, does: str) -> tuple[FunctionType, list[Any]]:
        """Return the function of a generator, and its operands."""
        called = self.evaluate(node.func) if isinstance(node, ast.Call) else None
        bound, function = _split_method(called)
        is_own = isinstance(function, FunctionType) and bound in (None, self.model)
        if not isinstance(node, ast.Call) or not is_own or not is_generator(function):
            self.refuse(f"{does} a value that is not a generator", node)
        values, named = self._evaluate_arguments(node)
        if named:
            self.refuse("has keyword arguments", node)
        return function, values if bound is None else [bound, *values]

    def evaluate_Yield(self, node: ast.Yield) -> Any:
        """Write a wait."""
        asked = node.value
        called = self.evaluate(asked.func) if isinstance(asked, ast.Call) else None
        if not isinstance(asked, ast.Call) or called not in (Named("fork"), Named("chance")):
            self.refuse("yields an unsupported value", node)
        if asked.keywords:
            self.refuse("has keyword arguments", asked)
        if called == Named("fork"):
            return self._write_fork(asked.args)
        values, _ = self._evaluate_arguments(asked)
        if not values:
            self.refuse("waits for nothing", asked)
        vertex, *key = [self.to_integer(value) for value in values]
        return self._write_chance(vertex, key)

    def _write_chance(self, vertex: Value, key: Sequence[Value]) -> Value:
        """Wait for a vertex of this segment; its number is drawn now, and stored until then."""
        is_there = self.builder.icmp_unsigned("<", vertex.ir, self.load_word(fibers.N).ir)
        self.check(is_there, IndexError, "no such vertex")
        state = self.load_at(fibers.SEEDS, self.load_frame_word(fibers.INSTANCE), UINT)
        for part in key:
            state = self.call_helper(runtime.mix_key, state, part)
        number = self.keep(self.call_helper(runtime.draw_number, state))
        target, behind = self.make_target()
        going = self.ir.append_basic_block("waits")
        begins = self.load_word(fibers.FIRST_OF_SEGMENT)
        is_computed = self.builder.icmp_signed("<", vertex.ir, begins.ir)
        self.builder.cbranch(is_computed, behind, going)
        self.builder.position_at_end(going)
        self.put_frame_word(fibers.PC, target)
        self.stop(fibers.WAITS, behind)
        drawn: Value = number()
        return drawn

    def _write_fork(self, nodes: Sequence[ast.expr]) -> tuple[Any, ...]:
        branches = [self._evaluate_branch(node) for node in nodes]
        if not branches:
            return ()
        slots = [self.n_slots + k for k in range(len(branches))]
        results = [Value(INT, self.allocate(WORD)) for _ in branches]
        target, behind = self.make_target()
        self.reserve(fibers.FRAMES, len(branches))
        children = []
        for k, (entry, values) in enumerate(branches):
            arguments = self.state, self.fiber, entry.number, k, slots[k]
            child = self.call_helper(fibers.make_fiber, *arguments)
            frame = self.call_helper(fibers.locate_frame, self.state, child)
            for slot, value in enumerate(values, start=fibers.FIRST_SLOT):
                pointer = self.builder.inttoptr(frame.ir, value.ir.type.as_pointer())
                self.builder.store(value.ir, self.builder.gep(pointer, [WORD(slot)]))
            children.append(child)
        self.call_helper(fibers.fork, self.state, self.fiber, target, len(branches))
        for child in reversed(children):
            self.call_helper(fibers.push, self.state, fibers.READY, child)
        self.stop(fibers.HAS_ENDED, behind)
        return tuple(
            Value(INT, self.builder.load(result.ir)) if entry.returns else None
            for (entry, _), result in zip(branches, results, strict=True)
        )

    def _evaluate_branch(self, node: ast.expr) -> tuple[FiberEntry, list[Value]]:
        """Return the function of a branch as an entry, and the operands of its fiber."""
        function, given = self._evaluate_generator(node, "forks")
        given = [self.materialize(value) for value in given]
        given = [
            self.arithmetic.convert(value, INT) if _is_bool(value) else value for value in given
        ]
        values = [value for value in given if isinstance(value, Value)]
        known = tuple(None if isinstance(value, Value) else value for value in given)
        if any(isinstance(value, Lambda | tuple) for value in known):
            self.refuse("passes a branch a value that is neither a number nor a list", node)
        kinds = tuple(value.kind for value in values)
        places = tuple(isinstance(value, Value) for value in given)
        key = function, kinds, places, tuple(map(id, known))
        if key not in self.entries:
            number, block = self.make_target()
            entry = FiberEntry(function, tuple(given), number, block, has_return_value(function))
            self.entries[key] = entry
            self.waiting.append(entry)
        return self.entries[key], values


def _split_method(called: Any) -> tuple[Any, Any]:
    """Return the object and the function of a method; the object is None for other callables."""
    is_method = isinstance(called, MethodType)
    return (called.__self__, called.__func__) if is_method else (None, called)


def _is_bool(value: Any) -> bool:
    return isinstance(value, Value) and value.kind == BOOL
