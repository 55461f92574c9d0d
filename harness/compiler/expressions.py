"""Expressions of compiled functions; values known at compile time are computed then."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from llvmlite import ir

from dynbatch.harness.compiler import arrays
from dynbatch.harness.compiler.arithmetic import Arithmetic, find_number_kind
from dynbatch.harness.compiler.builtins import put_all
from dynbatch.harness.compiler.kinds import (
    BOOL,
    INT,
    INT32,
    UINT,
    WORD,
    Array,
    Element,
    Number,
    Pointer,
    Static,
    TupleKind,
    Value,
    describe,
    put_together,
    take_apart,
)
from dynbatch.harness.compiler.registry import EMITTERS, HELPERS, METHODS, Compilable, look_up
from dynbatch.harness.errors import CompileError


class Expressions:
    """Evaluator of expressions, a base of FunctionWriter."""

    module: Any
    function: Callable[..., Any]
    builder: ir.IRBuilder
    arithmetic: Arithmetic
    variables: dict[str, Any]
    ir: Any
    call: Any
    materialize: Any
    allocate: Any
    read_name: Any

    def evaluate(self, node: ast.expr) -> Any:
        """Return the value of an expression."""
        name = f"evaluate_{type(node).__name__}"
        if not hasattr(self, name):
            raise CompileError(f"{type(node).__name__} is not supported")
        return getattr(self, name)(node)

    def evaluate_Constant(self, node: ast.Constant) -> Any:
        """Return a number, or the text of an error."""
        return node.value

    def evaluate_Name(self, node: ast.Name) -> Any:
        """Return the value of a variable or of a global name."""
        if node.id in self.variables:
            return self.read_name(node.id)
        code = self.function.__code__
        if node.id in code.co_varnames + code.co_cellvars:
            raise CompileError(f"{node.id} is used before assignment")
        return look_up(self.function, node.id)

    def evaluate_Tuple(self, node: ast.Tuple) -> Any:
        """Return the values of a tuple's elements."""
        return tuple(self.evaluate(element) for element in node.elts)

    def evaluate_Attribute(self, node: ast.Attribute) -> Any:
        """Return a field of a tuple, the sizes of an array, or an attribute of a module."""
        value = self.evaluate(node.value)
        if isinstance(value, Array):
            if node.attr == "shape":
                return tuple(Value(INT, size) for size in value.shape)
            if node.attr == "size":
                return Value(INT, self.count_elements(value.shape))
            if node.attr == "dtype":
                return np.dtype(value.element.name)
        # A change of other objects would not invalidate cached machine code; see registry.py.
        is_plain = isinstance(value, ModuleType | type | tuple | np.dtype)
        if not is_plain or not hasattr(value, node.attr):
            kind = describe(take_apart(value)[0])
            raise CompileError(f"{node.attr} of {kind} is not supported")
        return getattr(value, node.attr)

    def evaluate_BinOp(self, node: ast.BinOp) -> Any:
        """Return the value of a binary operator."""
        left = self.evaluate(node.left)
        return self.arithmetic.apply_operator(type(node.op), left, self.evaluate(node.right))

    def evaluate_UnaryOp(self, node: ast.UnaryOp) -> Any:
        """Return the value of a unary operator."""
        evaluate = self.evaluate_condition if isinstance(node.op, ast.Not) else self.evaluate
        return self.arithmetic.negate(type(node.op), evaluate(node.operand))

    def evaluate_BoolOp(self, node: ast.BoolOp) -> Any:
        """Return the deciding value of `and` or `or`; operands after it are not evaluated."""
        return self._evaluate_logic(isinstance(node.op, ast.And), node.values, self.evaluate)

    def evaluate_condition(self, node: ast.expr) -> Any:
        """Return the truth of an expression; static if it is known at compile time."""
        if isinstance(node, ast.BoolOp):
            return self._evaluate_logic(
                isinstance(node.op, ast.And), node.values, self.evaluate_condition
            )
        return self.arithmetic.compute_truth(self.evaluate(node))

    def _evaluate_logic(
        self, is_and: bool, nodes: list[ast.expr], evaluate: Callable[..., Any]
    ) -> Any:
        first = evaluate(nodes[0])
        if len(nodes) == 1:
            return first
        ways = (lambda: self._evaluate_logic(is_and, nodes[1:], evaluate)), (lambda: first)
        return self.branch_on(
            self.arithmetic.compute_truth(first), *(ways if is_and else ways[::-1])
        )

    def evaluate_Compare(self, node: ast.Compare) -> Any:
        """Return the result of a chained comparison; evaluation stops at the first false one."""
        return self._compare(self.evaluate(node.left), node.ops, node.comparators)

    def _compare(self, left: Any, operators: list[ast.cmpop], nodes: list[ast.expr]) -> Any:
        right = self.evaluate(nodes[0])
        if isinstance(operators[0], ast.In | ast.NotIn):
            holds = self._is_in(left, right)
            if isinstance(operators[0], ast.NotIn):
                holds = self.arithmetic.negate(ast.Not, holds)
        else:
            holds = self.arithmetic.compare(type(operators[0]), left, right)
        if len(nodes) == 1:
            return holds
        rest = lambda: self._compare(right, operators[1:], nodes[1:])  # noqa: E731
        return self.branch_on(holds, rest, lambda: False)

    def _is_in(self, value: Any, values: Any) -> Any:
        if not isinstance(values, tuple):
            raise CompileError("`in` supports only tuples")
        result: Any = False
        for item in values:
            result = self.arithmetic.apply_operator(
                ast.BitOr, result, self.arithmetic.compare(ast.Eq, value, item)
            )
        return result

    def evaluate_IfExp(self, node: ast.IfExp) -> Any:
        """Return one of two values; only that one is evaluated."""
        return self.branch_on(
            self.evaluate_condition(node.test),
            lambda: self.evaluate(node.body),
            lambda: self.evaluate(node.orelse),
        )

    def branch_on(self, condition: Any, *ways: Callable[[], Any]) -> Any:
        """Return the value of the first way if a condition holds, otherwise of the second."""
        if not isinstance(condition, Value):
            return ways[0 if condition else 1]()
        values, ends = [], []
        with self.builder.if_else(condition.ir) as branches:
            for branch, way in zip(branches, ways, strict=True):
                with branch:
                    values.append(way())
                    ends.append(self.builder.block)
        kind = self.find_common_kind(*values)
        registers = []
        for value, end in zip(values, ends, strict=True):
            with self.builder.goto_block(end):
                registers.append(take_apart(self.convert(value, kind))[1])
        phis = []
        for own in zip(*registers, strict=True):
            phi = self.builder.phi(own[0].type)
            for register, end in zip(own, ends, strict=True):
                phi.add_incoming(register, end)
            phis.append(phi)
        return put_together(kind, iter(phis))

    def find_common_kind(self, a: Any, b: Any) -> Any:
        """Return the kind of a value that is one of two."""
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            kinds = tuple(self.find_common_kind(*both) for both in zip(a, b, strict=True))
            return TupleKind(kinds, type(a) if hasattr(a, "_fields") else None)
        own, other = take_apart(a)[0], take_apart(b)[0]
        if own == other and not isinstance(own, Static):
            return own
        if all(isinstance(kind, Number | Static) for kind in (own, other)):
            return self.arithmetic.find_common_kind(a, b)
        raise CompileError(f"incompatible types: {describe(own)} and {describe(other)}")

    def convert(self, value: Any, kind: Any) -> Any:
        """Convert a value to a kind."""
        if isinstance(kind, Number):
            return self.arithmetic.convert(value, kind)
        is_tuple = isinstance(value, tuple)
        if isinstance(kind, TupleKind) and is_tuple and len(value) == len(kind.kinds):
            parts = [self.convert(*both) for both in zip(value, kind.kinds, strict=True)]
            return kind.named(*parts) if kind.named is not None else tuple(parts)
        own = take_apart(value)[0]
        if own != kind:
            raise CompileError(f"expected {describe(kind)}, got {describe(own)}")
        return value

    def evaluate_Call(self, node: ast.Call) -> Any:
        """Write a call of another compiled function or of one known to the compiler."""
        arguments = [self.evaluate(argument) for argument in node.args]
        named = {str(argument.arg): self.evaluate(argument.value) for argument in node.keywords}
        if isinstance(node.func, ast.Attribute):
            receiver = self.evaluate(node.func.value)
            if isinstance(receiver, Array | Value):
                if node.func.attr not in METHODS:
                    raise CompileError(f"{node.func.attr} is not supported")
                return METHODS[node.func.attr](self, receiver, *arguments, **named)
        return self.apply(self.evaluate(node.func), arguments, named)

    def apply(self, called: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
        """Return the value of a call."""
        if isinstance(called, Compilable):
            called = called.function
        if called in EMITTERS:
            return EMITTERS[called](self, *arguments, **named)
        if called in HELPERS:
            bound = inspect.signature(called).bind(*arguments, **named)
            bound.apply_defaults()
            return self.call(called, *bound.arguments.values(), fast=HELPERS[called])
        if hasattr(called, "_fields"):
            return called(*arguments, **named)
        raise CompileError(f"{getattr(called, '__name__', called)} is not supported")

    def evaluate_Subscript(self, node: ast.Subscript) -> Any:
        """Return an element or a part of an array or tuple, or an element at a pointer."""
        value = self.evaluate(node.value)
        if isinstance(value, tuple):
            position = self.evaluate(node.slice)
            if not isinstance(position, int) or not -len(value) <= position < len(value):
                raise CompileError(f"expected a constant as index of a tuple of {len(value)}")
            return value[position]
        if isinstance(value, Array):
            return self.index(value, self._evaluate_subscripts(node.slice))
        if isinstance(value, Value) and isinstance(value.kind, Pointer):
            return self.load(*self.find_place(node, value))
        raise CompileError("only arrays, pointers and tuples can be indexed")

    def _evaluate_subscripts(self, node: ast.expr) -> list[Any]:
        """Return the subscripts: values, and slices with values or None as bounds."""
        nodes = node.elts if isinstance(node, ast.Tuple) else [node]
        return [
            self._slice(subscript) if isinstance(subscript, ast.Slice) else self.evaluate(subscript)
            for subscript in nodes
        ]

    def _slice(self, node: ast.Slice) -> slice:
        if node.step is not None:
            raise CompileError("a slice cannot have a step")
        bounds = (
            None if bound is None else self.evaluate(bound) for bound in (node.lower, node.upper)
        )
        return slice(*bounds)

    def count_elements(self, shape: tuple[Any, ...]) -> Any:
        """Return the number of elements of an array with these sizes."""
        product = ir.Constant(WORD, 1)
        for k, size in enumerate(shape):
            product = size if k == 0 else self.builder.mul(product, size)
        return product

    def _to_index(self, index: Any, size: Any) -> Any:
        """Return an index as a word; a negative static one counts from the end."""
        if find_number_kind(index) not in (INT, UINT, INT32):
            raise CompileError("expected an integer as index")
        word = self.arithmetic.cast(index, INT).ir
        return word if isinstance(index, Value) or index >= 0 else self.builder.add(size, word)

    def index(self, array: Array, places: list[Any]) -> Any:
        """Return an element of an array, or the part of it that one or more indices select.

        An array as index selects the elements of a new array.
        """
        if len(places) == 1 and isinstance(places[0], Array):
            return self.call(arrays.gather, array, places[0])
        selected = self.select_part(array, places)
        return selected if selected.shape else self.load(selected.pointer, selected.element)

    def select_part(self, array: Array, places: list[Any]) -> Array:
        """Return the part of an array that indices select; a slice must be the last index."""
        pointer, shape = array.pointer, array.shape
        for k, index in enumerate(places):
            if not shape:
                raise CompileError(
                    f"expected at most one index per dimension, got {len(places)} for"
                    f" {len(array.shape)} dimension(s)"
                )
            size, rest = shape[0], shape[1:]
            n_each = self.count_elements(rest)
            if not isinstance(index, slice):
                at = self._to_index(index, size)
                shape = rest
            elif k + 1 < len(places):
                raise CompileError("columns of an array cannot be sliced; use a loop")
            else:
                at, n = self._compute_bounds(index, size)
                shape = (n, *rest)
            pointer = self.builder.gep(pointer, [self.builder.mul(at, n_each) if rest else at])
        return Array(array.element, pointer, shape)

    def _compute_bounds(self, bounds: slice, size: Any) -> tuple[Any, Any]:
        """Return the start and the length of a slice, limited by the array's end."""
        b, zero = self.builder, ir.Constant(WORD, 0)
        at = zero if bounds.start is None else self._to_index(bounds.start, size)
        if not isinstance(bounds.start, Value | None):
            at = b.select(b.icmp_signed(">", at, zero), at, zero)
        if bounds.stop is not None:
            end = self._to_index(bounds.stop, size)
            size = b.select(b.icmp_signed("<", end, size), end, size)
        elif bounds.start is None:
            return at, size
        n = b.sub(size, at)
        return at, b.select(b.icmp_signed(">", n, zero), n, zero)

    def find_place(self, node: ast.Subscript, value: Any = None) -> tuple[Any, Element]:
        """Return the address of an element, and its kind."""
        value = self.evaluate(node.value) if value is None else value
        if isinstance(value, Array):
            selected = self.select_part(value, self._evaluate_subscripts(node.slice))
            if selected.shape:
                raise CompileError("an operator changes only one element; use a loop")
            return selected.pointer, selected.element
        at = self.arithmetic.cast(self.evaluate(node.slice), INT)
        return self.builder.gep(value.ir, [at.ir]), value.kind.element

    def load(self, pointer: Any, element: Element) -> Value:
        """Return an element as a number."""
        loaded, to = self.builder.load(pointer), element.number.ir
        if element.number == BOOL:
            loaded = self.builder.icmp_unsigned("!=", loaded, ir.Constant(element.ir, 0))
        elif loaded.type != to:
            loaded = (self.builder.sext if element.is_signed else self.builder.zext)(loaded, to)
        return Value(element.number, loaded)

    def store(self, pointer: Any, element: Element, value: Any) -> None:
        """Write a number to memory as an element of its kind."""
        if find_number_kind(value).is_float and not element.number.is_float:
            raise CompileError(f"expected {element.name}, got a float; use int(...)")
        number = self.arithmetic.cast(value, element.number).ir
        if element.number == BOOL:
            number = self.builder.zext(number, element.ir)
        elif number.type != element.ir:
            number = self.builder.trunc(number, element.ir)
        self.builder.store(number, pointer)

    def store_at(self, target: ast.Subscript, value: Any) -> None:
        """Assign to an element, or to all elements of a part of an array."""
        into = self.evaluate(target.value)
        if not isinstance(into, Array):
            self.store(*self.find_place(target, into), value)
            return
        selected = self.select_part(into, self._evaluate_subscripts(target.slice))
        if not selected.shape:
            self.store(selected.pointer, selected.element, value)
        else:
            if isinstance(value, Array) and len(value.shape) != len(selected.shape):
                raise CompileError("expected an array of as many dimensions as the target")
            put_all(self, selected, value)

    def unpack(self, value: Any, n: int) -> Any:
        """Return the n elements of a tuple or of an array."""
        if isinstance(value, tuple) and len(value) == n:
            return value
        if isinstance(value, Array):
            return [self.index(value, [k]) for k in range(n)]
        raise CompileError(f"expected an array or a tuple of {n} to unpack")
