"""Lists, arrays and dicts of integers in compiled programs, and loops over them."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from dynbatch.harness.compiler.kinds import BOOL, INT, INT32, WORD, Value
from dynbatch.harness.errors import CompileError
from dynbatch.harness.programs.compiling import runtime
from dynbatch.harness.programs.compiling.frames import FrameWriter, has_wait

FURTHEST = 2**62  # a slice bound beyond any list


@dataclass(frozen=True, slots=True)
class ListKind:
    """Kind of values that are numbers of lists; see runtime."""

    name: str
    ir = WORD


# Arrays are read-only, with items of 32 bits. Dicts are lists of alternating keys and values.
LIST, ARRAY, DICT = ListKind("list"), ListKind("array"), ListKind("dict")


class IntegerSpan(NamedTuple):
    """Integers from start to stop, exclusive."""

    start: Any
    stop: Any


class Zipped(NamedTuple):
    """Iterables of a zip."""

    items: tuple[Any, ...]


class Enumerated(NamedTuple):
    """Iterable of an enumerate."""

    over: Any


def is_kept(value: Any, *kinds: ListKind) -> bool:
    """Return True if a value is a list, an array or a dict of one of these kinds."""
    return isinstance(value, Value) and value.kind in kinds


class ListWriter(FrameWriter):
    """Writer of lists and loops.

    `evaluate_iterable` evaluates an iterable, `loop_over` writes the loop.
    """

    def count_items(self, value: Any) -> Any:
        """Return the number of items."""
        if is_kept(value, LIST, ARRAY):
            return self.call_helper(runtime.read_length, self.state, self.handle(value))
        if isinstance(value, IntegerSpan):
            n = self.arithmetic.apply_operator(ast.Sub, value.stop, value.start)
            return self.apply(builtins.max, [n, 0], {})
        raise CompileError("has no length")

    def handle(self, value: Any) -> Value:
        """Return the number of a list."""
        return Value(INT, value.ir)

    def make_list(self, value: Any) -> Value:
        """Return a new list of all items."""
        if is_kept(value, LIST):
            result = self.cut(value, 0, FURTHEST, 1)
        elif isinstance(value, IntegerSpan):
            result = self.call_helper(runtime.fill, self.state, *map(self.materialize, value))
        elif isinstance(value, tuple) and not hasattr(value, "_fields"):
            room = max(runtime.FEWEST, len(value))
            result = self.call_helper(runtime.make_list, self.state, room)
            for item in value:
                self.append(result, item)
        else:
            raise CompileError("makes a list of non-integers")
        return Value(LIST, result.ir)

    def append(self, container: Value, value: Any) -> None:
        """Append an integer."""
        self.call_helper(runtime.append, self.state, self.handle(container), self.to_integer(value))

    def cut(self, container: Value, start: Any, stop: Any, step: int) -> Value:
        """Return a copy of a part."""
        bounds = self.to_integer(start), self.to_integer(stop), step
        result = self.call_helper(runtime.cut, self.state, self.handle(container), *bounds)
        return Value(container.kind, result.ir)

    # --- expressions -------------------------------------------------------------------------

    def evaluate_List(self, node: ast.List) -> Value:
        """Create a new list."""
        return self.make_list(tuple(self.evaluate_all(node.elts)))

    def evaluate_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        """Return the values of a tuple's elements."""
        return tuple(self.evaluate_all(node.elts))

    def evaluate_Dict(self, node: ast.Dict) -> Value:
        """Create a new dict."""
        parts = [part for both in zip(node.keys, node.values, strict=True) for part in both]
        if None in parts:
            self.refuse("unpacks a dict", node)
        return Value(DICT, self.make_list(tuple(self.evaluate_all([p for p in parts if p]))).ir)

    def evaluate_BinOp(self, node: ast.BinOp) -> Any:
        """Return the value of a binary operator."""
        return self._apply_operator(node.op, *self.evaluate_all([node.left, node.right]))

    def _apply_operator(self, op: ast.operator, left: Any, right: Any) -> Any:
        if is_kept(left, LIST) and is_kept(right, LIST) and isinstance(op, ast.Add):
            result = self.make_list(left)
            self.call_helper(runtime.extend, self.state, *map(self.handle, (result, right)))
            return result
        if is_kept(left, LIST) and isinstance(op, ast.Mult):
            arguments = self.state, self.handle(left), self.to_integer(right)
            return Value(LIST, self.call_helper(runtime.repeat, *arguments).ir)
        return self.arithmetic.apply_operator(type(op), left, right)

    def write_AugAssign(self, node: ast.AugAssign) -> None:
        """Write an augmented assignment to a name, which extends a list."""
        target = node.target
        if not isinstance(target, ast.Name):
            self.refuse("assigns to an unsupported target", node)
        name = ast.Name(target.id, ast.Load())
        before, value = self.evaluate_all([name, node.value])
        if is_kept(before, LIST) and isinstance(node.op, ast.Add):
            by = value if is_kept(value, LIST) else self.make_list(value)
            self.call_helper(runtime.extend, self.state, *map(self.handle, (before, by)))
            return
        if is_kept(before, LIST):
            self.refuse("changes a list in place", node)
        self.assign(target, self._apply_operator(node.op, before, value))

    def store_at(self, target: ast.Subscript, value: Any) -> None:
        """Set a dict's item."""
        container, index = self.evaluate(target.value), self.evaluate(target.slice)
        if not is_kept(container, DICT):
            self.refuse("sets an item of a value that is not a dict", target)
        self.append(container, index)
        self.append(container, value)

    def evaluate_Subscript(self, node: ast.Subscript) -> Any:
        """Return an item of a list or a tuple, or a copy of a part of a list."""
        container = self.evaluate(node.value)
        if isinstance(container, IntegerSpan) and not isinstance(node.slice, ast.Slice):
            return self._load_span_item(container, self.evaluate(node.slice))
        if isinstance(container, tuple):
            return super().evaluate_Subscript(node)
        if not is_kept(container, LIST, ARRAY):
            self.refuse("has an unsupported index", node)
        if isinstance(node.slice, ast.Slice):
            return self._slice_list(container, node.slice)
        return self._load_item(container, self.evaluate(node.slice))

    def _slice_list(self, container: Value, node: ast.Slice) -> Value:
        step = 1 if node.step is None else self.evaluate(node.step)
        if isinstance(step, Value) or step not in (1, -1):
            self.refuse("has a step that is not 1 or -1", node)
        start, stop = (0, FURTHEST) if step > 0 else (FURTHEST, -FURTHEST)
        start = start if node.lower is None else self.evaluate(node.lower)
        stop = stop if node.upper is None else self.evaluate(node.upper)
        return self.cut(container, start, stop, step)

    def _load_span_item(self, span: IntegerSpan, index: Any) -> Value:
        if isinstance(index, Value) or not isinstance(index, int):
            raise CompileError("has an unsupported index")
        n, operate = self.materialize(self.count_items(span)), self.arithmetic.apply_operator
        lowest = self.materialize(index if index >= 0 else -1 - index)
        is_there = self.builder.icmp_signed(">", n.ir, lowest.ir)
        self.check(is_there, IndexError, "list index out of range")
        result: Value = operate(ast.Add, span.start if index >= 0 else span.stop, index)
        return result

    def _load_item(self, container: Value, index: Any) -> Value:
        result = self.call_helper(
            runtime.get_item, self.state, self.handle(container), self.to_integer(index)
        )
        return self.arithmetic.cast(result, INT32) if container.kind == ARRAY else result

    def unpack(self, value: Any, n: int) -> Any:
        """Return the n elements of a tuple."""
        if not isinstance(value, tuple) or hasattr(value, "_fields"):
            raise CompileError("unpacks a value that is not a tuple")
        return super().unpack(value, n)

    def call_list_method(self, container: Value, name: str, arguments: Sequence[Any]) -> Any:
        """Write a method call, and return its value."""
        match container.kind, name, arguments:
            case kind, "append", [value] if kind == LIST:
                self.append(container, value)
                return None
            case kind, "pop", [] if kind == LIST:
                return self.call_helper(runtime.pop_item, self.state, self.handle(container))
            case kind, "tolist", [] if kind == ARRAY:
                return self.make_list(Value(LIST, container.ir))
        raise CompileError(f"calls an unsupported function: {name} of {container.kind.name}")

    # --- loops -------------------------------------------------------------------------------

    def evaluate_iterable(self, node: ast.expr) -> Any:
        """Evaluate an iterable; `zip` and `enumerate` combine several."""
        match node:
            case ast.Call(func=ast.Name() as name):
                called = self.evaluate(name)
            case _:
                called = None
        if not isinstance(node, ast.Call) or called not in (builtins.zip, builtins.enumerate):
            return self.evaluate(node)
        parts = tuple(self.evaluate_iterable(part) for part in node.args)
        if called is builtins.enumerate:
            if len(parts) != 1 or node.keywords:
                self.refuse("enumerates from a start other than 0", node)
            return Enumerated(*parts)
        strict = [ast.unparse(keyword) for keyword in node.keywords]
        if strict not in ([], ["strict=True"], ["strict=False"]) or not parts:
            self.refuse("has an unsupported zip", node)
        if strict == ["strict=True"]:
            self.check_lengths(parts)
        return Zipped(parts)

    def check_lengths(self, parts: Sequence[Any]) -> None:
        """Raise an error unless all lengths are equal."""
        first, *others = [self.materialize(self.count_items(item)).ir for item in parts]
        for item in others:
            is_fine = self.builder.icmp_signed("==", first, item)
            self.check(is_fine, ValueError, "zip() arguments have different lengths")

    @contextmanager
    def loop_over(self, over: Any) -> Iterator[Any]:
        """Write a loop around the body of this context, which gets an item of each step."""
        counter = self.allocate(WORD)
        self.builder.store(WORD(0), counter)
        read = self.keep(over)
        test, following = (self.ir.append_basic_block(name) for name in ("test", "next"))
        self.builder.branch(test)
        self.builder.position_at_end(test)
        number = Value(INT, self.builder.load(counter))
        goes_on = self._is_within(read(), number)
        with self.forget_assignments(), self.write_loop(test, following) as (body, behind):
            self.builder.cbranch(goes_on, body, behind)
            self.builder.position_at_end(body)
            yield self._step(read(), number)
            if not self.builder.block.is_terminated:
                self.builder.branch(following)
            self.builder.position_at_end(following)
            one_more = self.builder.add(self.builder.load(counter), WORD(1))
            self.builder.store(one_more, counter)
            self.builder.branch(test)

    def _is_within(self, over: Any, number: Value) -> Any:
        if isinstance(over, Zipped):
            result = BOOL.ir(1)
            for item in over.items:
                result = self.builder.and_(result, self._is_within(item, number))
            return result
        if isinstance(over, Enumerated):
            return self._is_within(over.over, number)
        if isinstance(over, IntegerSpan):
            at = self.builder.add(over.start.ir, number.ir)
            return self.builder.icmp_signed("<", at, over.stop.ir)
        if is_kept(over, LIST, ARRAY):
            return self.builder.icmp_signed("<", number.ir, self.count_items(over).ir)
        raise CompileError("goes through something else than lists and ranges")

    def _step(self, over: Any, number: Value) -> Any:
        if isinstance(over, Zipped):
            return tuple(self._step(item, number) for item in over.items)
        if isinstance(over, Enumerated):
            return number, self._step(over.over, number)
        if isinstance(over, IntegerSpan):
            return Value(INT, self.builder.add(over.start.ir, number.ir))
        return self._load_item(over, number)

    def write_For(self, node: ast.For) -> None:
        """Write a loop over a list or a range."""
        if node.orelse:
            self.refuse("has an else clause after a loop")
        with self.loop_over(self.evaluate_iterable(node.iter)) as item:
            self.assign(node.target, item)
            self.write_all(node.body)

    def evaluate_ListComp(self, node: ast.ListComp) -> Value:
        """Create a new list; the comprehension has its own names."""
        values = self._write_values_by_key(node)
        if values is not None:
            return values
        if has_wait(node):
            self.refuse("waits inside a list", node)
        load_list = self.keep(self.make_list(()))
        own = {
            child.id
            for generator in node.generators
            for child in ast.walk(generator.target)
            if isinstance(child, ast.Name)
        }
        over = self.evaluate_iterable(node.generators[0].iter)
        with self.own_names(own):
            self._generate(node, node.generators, load_list, over)
        made: Value = load_list()
        return made

    def _generate(
        self,
        node: ast.ListComp,
        generators: Sequence[ast.comprehension],
        load_list: Callable[[], Value],
        over: Any,
    ) -> None:
        first, *others = generators
        if first.ifs:
            self.refuse("has a condition in a list", node)
        with self.loop_over(over) as item:
            self.assign(first.target, item)
            if others:
                self._generate(node, others, load_list, self.evaluate_iterable(others[0].iter))
            else:
                self.append(load_list(), self.evaluate(node.elt))

    def _write_values_by_key(self, node: ast.ListComp) -> Value | None:
        """Write [d[k] for k in sorted(d)] as one call."""
        first = node.generators[0]
        match node.elt, first:
            case (
                ast.Subscript(ast.Name(of), ast.Name(key)),
                ast.comprehension(
                    ast.Name(target), ast.Call(ast.Name("sorted"), [ast.Name(again)], []), []
                ),
            ) if of == again and key == target and len(node.generators) == 1:
                value = self.evaluate(node.elt.value)
                if is_kept(value, DICT):
                    arguments = self.state, self.handle(value)
                    return Value(LIST, self.call_helper(runtime.sort_values_by_key, *arguments).ir)
        return None
