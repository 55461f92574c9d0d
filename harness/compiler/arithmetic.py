"""Conversions, operators and comparisons of numbers, as LLVM instructions.

Division and remainder round down, as in Python; the divisor must not be 0. A literal number takes
the kind of its other operand, as in NumPy: 0.5 times a float32 is a float32. So does an integer
combined with a float. Results that do not fit into 64 bits wrap, except in a division by -1.
"""

from __future__ import annotations

import ast
import operator
from typing import Any

import numpy as np
from llvmlite import ir

from dynbatch.harness.compiler.kinds import (
    BOOL,
    ELEMENTS,
    FLOAT,
    INT,
    INT32,
    UINT,
    Array,
    Number,
    Value,
    describe,
    take_apart,
)
from dynbatch.harness.errors import CompileError

STATIC_OPERATORS: dict[type, Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.Eq: operator.eq, ast.NotEq: operator.ne,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.USub: operator.neg,
    ast.Not: operator.not_, ast.Invert: operator.invert, ast.UAdd: operator.pos,
}  # fmt: skip
_OF_NUMPY = {name: element.number for name, element in ELEMENTS.items()} | {"int32": INT32}
_COMPARED: dict[type, str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_WHOLE: dict[type, str] = {ast.BitAnd: "and_", ast.BitOr: "or_", ast.BitXor: "xor"}
_PLAIN: dict[type, str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}


class Arithmetic:
    """Writer of arithmetic at a builder's position; fast: LLVM's fast-math flags."""

    def __init__(self, builder: ir.IRBuilder, fast: tuple[str, ...]) -> None:
        self.builder, self.fast = builder, fast

    def number(self, value: Any) -> Value:
        """Return a number in a register, also if it was static."""
        kind = find_number_kind(value)
        return value if isinstance(value, Value) else self.make_constant(value, kind)

    def make_constant(self, value: Any, kind: Number) -> Value:
        """Return a static number as one of a kind; raise CompileError if it is out of range."""
        find_number_kind(value)
        if kind.is_float:
            plain = float(value) if kind == FLOAT else float(np.float32(value))
            return Value(kind, ir.Constant(kind.ir, plain))
        whole, half = int(bool(value) if kind == BOOL else value), 2 ** (kind.ir.width - 1)
        least, most = (0, 2 * half - 1) if kind in (UINT, BOOL) else (-half, half - 1)
        if not least <= whole <= most:
            raise CompileError(f"{whole} is not a valid {kind.name}")
        return Value(kind, ir.Constant(kind.ir, whole if whole < half else whole - 2 * half))

    def convert(self, value: Any, kind: Number) -> Value:
        """Return a number as one of a kind that represents all of its values.

        Raises:
            CompileError: if the kind does not.
        """
        own = find_number_kind(value)
        if own == kind:
            return self.number(value)
        if not isinstance(value, Value):
            if own.is_float > kind.is_float or kind == BOOL:
                raise CompileError(f"{value} is not a valid {kind.name}")
            return self.make_constant(value, kind)
        if own.rank > kind.rank or kind == UINT or (own == UINT and not kind.is_float):
            raise CompileError(f"cannot convert {own.name} to {kind.name} implicitly; use a cast")
        return self.cast(value, kind)

    def cast(self, value: Any, kind: Number) -> Value:
        """Return a number as one of a kind, even if information is lost."""
        own, b = find_number_kind(value), self.builder
        if not isinstance(value, Value):
            return self.make_constant(value, kind)
        if own == kind or {own, kind} == {INT, UINT}:
            return Value(kind, value.ir)
        if kind == BOOL:
            converted: Value = self.compute_truth(value)
            return converted
        if own.is_float and kind.is_float:
            converted = (
                b.fpext(value.ir, kind.ir) if kind == FLOAT else b.fptrunc(value.ir, kind.ir)
            )
        elif kind.is_float:
            is_signed = own not in (UINT, BOOL)
            converted = (b.sitofp if is_signed else b.uitofp)(value.ir, kind.ir)
        elif own.is_float:
            converted = (b.fptoui if kind == UINT else b.fptosi)(value.ir, kind.ir)
        elif own.ir.width > kind.ir.width:
            converted = b.trunc(value.ir, kind.ir)
        else:
            converted = (b.zext if own == BOOL else b.sext)(value.ir, kind.ir)
        return Value(kind, converted)

    def compute_truth(self, value: Any) -> Any:
        """Return True if a number is not 0; the result is static for a static number."""
        if isinstance(value, Array):
            raise CompileError("an array has no truth value; use a loop, or len(...) > 0")
        if not isinstance(value, Value):
            return bool(value)
        if find_number_kind(value) == BOOL:
            return value
        zero = ir.Constant(value.kind.ir, 0)
        if value.kind.is_float:
            return Value(BOOL, self.builder.fcmp_unordered("!=", value.ir, zero))
        return Value(BOOL, self.builder.icmp_signed("!=", value.ir, zero))

    def unify(self, a: Any, b: Any) -> tuple[Value, Value]:
        """Convert two numbers to a common kind."""
        kind = self.find_common_kind(a, b)
        return self.convert(a, kind), self.convert(b, kind)

    def find_common_kind(self, a: Any, b: Any) -> Number:
        """Return the common kind of two numbers; a literal adapts to the other one."""
        x, y = find_number_kind(a), find_number_kind(b)
        if {x, y} == {INT, UINT}:
            if _is_adaptable(a) != _is_adaptable(b):
                return UINT
            raise CompileError("cannot combine uint64 and int64; convert one of them")
        for weak, own, other in ((a, x, y), (b, y, x)):
            if _is_adaptable(weak) and (own.is_float == other.is_float or other.is_float):
                return INT if other == BOOL and own != BOOL else other
        return max(x, y, key=lambda kind: kind.rank)

    def apply_operator(self, operator_: type, a: Any, b: Any) -> Any:
        """Return the value of a binary operator."""
        if operator_ in STATIC_OPERATORS and are_static(a, b):
            return STATIC_OPERATORS[operator_](a, b)
        if operator_ not in STATIC_OPERATORS or operator_ is ast.Pow:
            raise CompileError(f"{operator_.__name__} is not supported")
        is_float = find_number_kind(a).is_float or find_number_kind(b).is_float
        if operator_ is ast.Div and not is_float:
            a, b = self.cast(a, FLOAT), self.cast(b, FLOAT)
        if is_float and operator_ is not ast.Div and operator_ not in _PLAIN:
            raise CompileError(f"{operator_.__name__} needs integers")
        x, y = self.unify(a, b)
        if operator_ in _WHOLE:
            return Value(x.kind, getattr(self.builder, _WHOLE[operator_])(x.ir, y.ir))
        if x.kind == BOOL:
            x, y = self.convert(x, INT), self.convert(y, INT)
        if operator_ in (ast.LShift, ast.RShift):
            return self._shift(operator_, x, y)
        if operator_ in (ast.FloorDiv, ast.Mod):
            return self._divide(operator_, x, y, b)
        return self._apply_plain(operator_, x, y)

    def _apply_plain(self, operator_: type, x: Value, y: Value) -> Value:
        name = "div" if operator_ is ast.Div else _PLAIN[operator_]
        if x.kind.is_float:
            return Value(x.kind, getattr(self.builder, f"f{name}")(x.ir, y.ir, flags=self.fast))
        return Value(x.kind, getattr(self.builder, name)(x.ir, y.ir))

    def _shift(self, operator_: type, x: Value, y: Value) -> Value:
        """Return the result of a shift; shifting by all bits or more leaves none."""
        b, kind, n = self.builder, x.kind.ir, x.kind.ir.width
        fits = b.icmp_unsigned("<", y.ir, ir.Constant(kind, n))
        if operator_ is ast.RShift and x.kind != UINT:
            return Value(x.kind, b.ashr(x.ir, b.select(fits, y.ir, ir.Constant(kind, n - 1))))
        shifted = (b.shl if operator_ is ast.LShift else b.lshr)(x.ir, y.ir)
        return Value(x.kind, b.select(fits, shifted, ir.Constant(kind, 0)))

    def _divide(self, operator_: type, x: Value, y: Value, divisor: Any) -> Value:
        """Return a quotient or remainder that is rounded down."""
        b, kind, is_division = self.builder, x.kind, operator_ is ast.FloorDiv
        if not isinstance(divisor, Value) and divisor == 0:
            raise CompileError("division by 0")
        if kind == UINT:
            return Value(kind, (b.udiv if is_division else b.urem)(x.ir, y.ir))
        if isinstance(divisor, int) and divisor > 0 and divisor & (divisor - 1) == 0:
            if is_division:
                return Value(kind, b.ashr(x.ir, ir.Constant(kind.ir, divisor.bit_length() - 1)))
            return Value(kind, b.and_(x.ir, ir.Constant(kind.ir, divisor - 1)))
        quotient, rest, zero = b.sdiv(x.ir, y.ir), b.srem(x.ir, y.ir), ir.Constant(kind.ir, 0)
        is_between = b.icmp_signed("!=", rest, zero)
        differs = b.and_(is_between, b.icmp_signed("<", b.xor(rest, y.ir), zero))
        if is_division:
            return Value(kind, b.sub(quotient, b.zext(differs, kind.ir)))
        return Value(kind, b.add(rest, b.select(differs, y.ir, zero)))

    def compare(self, operator_: type, a: Any, b: Any) -> Any:
        """Return the result of a comparison."""
        if operator_ in (ast.Is, ast.IsNot):
            if a is not None and b is not None:
                raise CompileError("`is` supports only None")
            return (a is b) == (operator_ is ast.Is)
        if any(isinstance(value, tuple) and take_apart(value)[1] for value in (a, b)):
            raise CompileError("cannot compare tuples; compare their elements")
        if are_static(a, b):
            return STATIC_OPERATORS[operator_](a, b)
        x, y = self.unify(a, b)
        sign = _COMPARED[operator_]
        if x.kind.is_float:
            ordered = self.builder.fcmp_unordered if sign == "!=" else self.builder.fcmp_ordered
            return Value(BOOL, ordered(sign, x.ir, y.ir))
        is_signed = x.kind not in (UINT, BOOL)
        compared = self.builder.icmp_signed if is_signed else self.builder.icmp_unsigned
        return Value(BOOL, compared(sign, x.ir, y.ir))

    def negate(self, operator_: type, value: Any) -> Any:
        """Return the value of a unary operator."""
        if operator_ is ast.Not:
            is_true = self.compute_truth(value)
            if not isinstance(is_true, Value):
                return not is_true
            return Value(BOOL, self.builder.not_(is_true.ir))
        if are_static(value):
            return STATIC_OPERATORS[operator_](value)
        if find_number_kind(value) == BOOL:
            value = self.convert(value, INT)
        if operator_ is ast.UAdd:
            return value
        if operator_ is ast.Invert:
            if value.kind.is_float:
                raise CompileError("Invert needs integers")
            return Value(value.kind, self.builder.not_(value.ir))
        if value.kind.is_float:
            return Value(value.kind, self.builder.fneg(value.ir))
        return Value(value.kind, self.builder.neg(value.ir))

    def choose(self, condition: Value, a: Any, b: Any) -> Value:
        """Return one of two numbers, by a condition."""
        x, y = self.unify(a, b)
        return Value(x.kind, self.builder.select(condition.ir, x.ir, y.ir))


def _is_adaptable(value: Any) -> bool:
    """Return True for a static number without a NumPy type, which would be preserved."""
    return not isinstance(value, Value | np.generic)


def are_static(*values: Any) -> bool:
    """Return True if all values are known at compile time."""
    if any(isinstance(value, Array) for value in values):
        raise CompileError("operators do not support whole arrays; use a loop")
    return not any(isinstance(value, Value) for value in values)


def find_number_kind(value: Any) -> Number:
    """Return the kind of a number, static or not; raise CompileError for anything else."""
    kind = take_apart(value)[0]
    if isinstance(kind, Number):
        return kind
    if isinstance(value, np.generic) and value.dtype.name in _OF_NUMPY:
        return _OF_NUMPY[value.dtype.name]
    for of_python, number_kind in ((bool, BOOL), (int, INT), (float, FLOAT)):
        if isinstance(value, of_python):
            return number_kind
    raise CompileError(f"expected a number, got {describe(kind)}")
