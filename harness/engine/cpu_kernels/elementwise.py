"""Fused groups of elementwise operators as LLVM IR with explicit vectors; sizes are arguments.

A compiler that vectorizes a loop over columns tests before every row whether a dozen rows overlap.
Explicit vectors need no such test, because lowering places values so that a group reads and writes
column by column (dynbatch.harness.engine.lowering.placement).

tanh, sigmoid and exp have no table and no branch. The error of tanh and exp is a few units in the
last place. sigmoid x is (1 + tanh(x / 2)) / 2; its absolute error is under 3e-7, so a smaller value
has no correct digits.

* tanh x is x P(x^2) / Q(x^2) with P of degree 6 and Q of degree 3, fitted by iteratively reweighted
  least squares to minimize the relative error on [-8, 8] (2e-9 in exact arithmetic). Outside, x is
  clamped, because tanh is within 3e-7 of 1 there. In float32, the relative error stays under 5e-7.
* exp x is 2^n exp r with x = n log 2 + r and |r| <= log(2) / 2. exp r is its Taylor sum to r^6
  (relative error 1e-7, and under 5e-7 with all roundings). x is clamped to [-87, 88], inside the
  range of float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir

from dynbatch.harness.compiler.pointers import FLOAT_BYTES, WORD_BYTES
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.engine.cpu_kernels.vectors import FLOAT, INT32, WORD, write_loop
from dynbatch.harness.engine.lowering.plan import Operation

F = np.float32
LIMIT = F(8.0)
P = (
    *(F(0.9999999982248846), F(0.1312434943208993), F(3.1493643471602792e-3)),
    *(F(1.1642439822295911e-5), F(-2.231464612930298e-8), F(6.365524581083284e-11)),
    F(-1.156428313665701e-13),
)
Q = (F(1.0), F(0.46457680935241213), F(0.024674998906289915), F(2.612973711282404e-4))
HALF, ONE = F(0.5), F(1.0)
LOWEST, HIGHEST = F(-87.0), F(88.0)
# log 2 in two parts; the first has few bits, so that n times it is exact, too.
LOG2_E, LOG_2_HIGH, LOG_2_LOW = F(1.4426950408889634), F(0.693359375), F(-2.12194440e-4)
E = (ONE, ONE, F(1 / 2), F(1 / 6), F(1 / 24), F(1 / 120), F(1 / 720))
_E2, _E3, _E4, _E5, _E6 = E[2:]
EXPONENT_BIAS, MANTISSA_BITS = np.int32(127), np.int32(23)

# Contraction and reassociation let the loop vectorize; NaN and infinity keep their meaning.
FAST = ("contract", "reassoc", "nsz", "arcp")


@helper(fast=FAST)
def compute_exp(x: np.float32) -> np.float32:
    """Compute e^x in float32; the power of two is written into the bits of the exponent."""
    x = min(max(x, LOWEST), HIGHEST)
    n = np.floor(x * LOG2_E + HALF)
    r = x - n * LOG_2_HIGH
    r = r - n * LOG_2_LOW
    p = ONE + r * (ONE + r * (_E2 + r * (_E3 + r * (_E4 + r * (_E5 + r * _E6)))))
    power = (np.int32(n) + EXPONENT_BIAS) << MANTISSA_BITS
    return np.float32(p * np.int32(power).view(np.float32))


SYMBOL = "kernel"


class RowKind(StrEnum):
    """Addressing of an operand's rows, with the operands that it needs."""

    STRIDED = "strided"  # one operand: the address of the first row
    INDEXED = "indexed"  # two: the array, and the int64 numbers of its rows
    SAME = "same"  # one: a vector that all rows share


N_OPERANDS = {RowKind.STRIDED: 1, RowKind.INDEXED: 2, RowKind.SAME: 1}


@dataclass(frozen=True, slots=True)
class ColumnStore:
    """A store of a named value to a column of a row, or an addition to the value there."""

    row: int
    column: int
    name: str
    adds: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A fused group, independent of a model's sizes.

    Attributes:
        rows: Distinct rows in memory.
        loads: (row, column) of each input; a column is the number of an offset, which is an
            argument.
        ragged: Widths need not be a multiple of the vector's.
        periodic: A vector that all rows share repeats within a row, as the bias of a matrix does.
    """

    rows: tuple[RowKind, ...]
    loads: tuple[tuple[int, int], ...]
    operations: tuple[Operation, ...]
    stores: tuple[ColumnStore, ...]
    n_columns: int
    ragged: bool = False
    periodic: bool = False


@dataclass(slots=True)
class VectorArithmetic:
    """Writer of operators for values of one type: a vector, or a single float."""

    builder: ir.IRBuilder
    kind: Any

    def number(self, x: float | np.float32) -> Any:
        """Return a float32 in every lane."""
        return self._spread(self.kind, float(x))

    def _spread(self, kind: Any, x: Any) -> Any:
        return ir.Constant(kind, [x] * kind.count if isinstance(kind, ir.VectorType) else x)

    def spread_integer(self, x: np.int32) -> Any:
        """Return an int32 in every lane."""
        return self._spread(self.int_kind, int(x))

    @property
    def int_kind(self) -> Any:
        return INT32 if self.kind is FLOAT else ir.VectorType(INT32, self.kind.count)

    def add(self, x: Any, y: Any) -> Any:
        return self.builder.fadd(x, y, flags=FAST)

    def sub(self, x: Any, y: Any) -> Any:
        return self.builder.fsub(x, y, flags=FAST)

    def mul(self, x: Any, y: Any) -> Any:
        return self.builder.fmul(x, y, flags=FAST)

    def div(self, x: Any, y: Any) -> Any:
        return self.builder.fdiv(x, y, flags=FAST)

    def neg(self, x: Any) -> Any:
        return self.builder.fneg(x, flags=FAST)

    def sum(self, *values: Any) -> Any:
        total, *rest = values
        for value in rest:
            total = self.add(total, value)
        return total

    def clamp(self, x: Any, lowest: np.float32, highest: np.float32) -> Any:
        """Clamp x; NaN stays NaN."""
        for sign, limit in ((">", lowest), ("<", highest)):
            y = self.number(limit)
            x = self.builder.select(self.builder.fcmp_ordered(sign, y, x), y, x)
        return x

    def evaluate_polynomial(self, s: Any, factors: Sequence[np.float32]) -> Any:
        """Evaluate factors[0] + factors[1] s + factors[2] s^2 + ...."""
        total = self.number(factors[-1])
        for factor in reversed(factors[:-1]):
            total = self.add(self.mul(total, s), self.number(factor))
        return total

    def tanh(self, x: Any) -> Any:
        x = self.clamp(x, -LIMIT, LIMIT)
        s = self.mul(x, x)
        return self.div(self.mul(x, self.evaluate_polynomial(s, P)), self.evaluate_polynomial(s, Q))

    def sigmoid(self, x: Any) -> Any:
        half = self.number(0.5)
        return self.add(self.mul(half, self.tanh(self.mul(half, x))), half)

    def exp(self, x: Any) -> Any:
        x = self.clamp(x, LOWEST, HIGHEST)
        scaled = self.add(self.mul(x, self.number(LOG2_E)), self.number(0.5))
        n = self._call("floor", scaled)
        r = self.sub(x, self.mul(n, self.number(LOG_2_HIGH)))
        r = self.sub(r, self.mul(n, self.number(LOG_2_LOW)))
        biased = self.builder.add(
            self.builder.fptosi(n, self.int_kind), self.spread_integer(EXPONENT_BIAS)
        )
        power = self.builder.shl(biased, self.spread_integer(MANTISSA_BITS))
        power = self.builder.bitcast(power, self.kind)
        return self.mul(self.evaluate_polynomial(r, E), power)

    def log(self, x: Any) -> Any:
        return self._call("log", x)

    def sqrt(self, x: Any) -> Any:
        return self._call("sqrt", x)

    def square(self, x: Any) -> Any:
        return self.mul(x, x)

    def relu(self, x: Any) -> Any:
        zero = self.number(0.0)
        return self.builder.select(self.builder.fcmp_ordered("<", x, zero), zero, x)

    def sigmoid_gradient(self, dy: Any, y: Any) -> Any:
        return self.mul(self.mul(dy, y), self.sub(self.number(1.0), y))

    def tanh_gradient(self, dy: Any, y: Any) -> Any:
        return self.mul(dy, self.sub(self.number(1.0), self.mul(y, y)))

    def relu_gradient(self, dy: Any, y: Any) -> Any:
        zero = self.number(0.0)
        return self.builder.select(self.builder.fcmp_ordered(">", y, zero), dy, zero)

    def _call(self, intrinsic: str, x: Any) -> Any:
        suffix = "f32" if self.kind is FLOAT else f"v{self.kind.count}f32"
        name, module = f"llvm.{intrinsic}.{suffix}", self.builder.module
        if name not in module.globals:
            ir.Function(module, ir.FunctionType(self.kind, [self.kind]), name)
        return self.builder.call(module.globals[name], [x])


OPERATORS: dict[str, Callable[..., Any]] = {
    "bias": VectorArithmetic.add,
    **{
        name: getattr(VectorArithmetic, name)
        for name in (
            *("add", "sum", "sub", "mul", "div", "neg", "sigmoid", "tanh", "relu", "exp", "log"),
            *("square", "sqrt", "sigmoid_gradient", "tanh_gradient", "relu_gradient"),
        )
    },
}
WITH_CONSTANT: dict[str, Callable[..., Any]] = {
    "scale": VectorArithmetic.mul,
    "shift": VectorArithmetic.add,
}


def write_group(module: ir.Module, group: Group, n_lanes: int) -> None:
    """Add the function `kernel` that computes a group for some rows.

    Its arguments are int64: the address of the thread's context (not read here); the address of
    (address, bytes between rows) of each operand; the address of constants; the number of rows. The
    constants are the width in floats, the length of a period if values are periodic, and the offset
    in bytes of each column.
    """
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORD] * 4), SYMBOL)
    _GroupKernelWriter(ir.IRBuilder(function.append_basic_block()), group, n_lanes).write(
        *function.args
    )


@dataclass(slots=True)
class _GroupKernelWriter:
    builder: ir.IRBuilder
    group: Group
    n_lanes: int

    def write(self, _: Any, operands: Any, constants: Any, n_rows: Any) -> None:
        b, group = self.builder, self.group
        n_operands = sum(N_OPERANDS[kind] for kind in group.rows)
        addresses = [
            (self._load_word(operands, 2 * k), self._load_word(operands, 2 * k + 1))
            for k in range(n_operands)
        ]
        width = self._load_word(constants, 0)
        period = self._load_word(constants, 1) if group.periodic else width
        first = 2 if group.periodic else 1
        offsets = [self._load_word(constants, first + k) for k in range(group.n_columns)]
        with write_loop(b, WORD(0), n_rows, WORD(1)) as row:
            starts = self._compute_starts(addresses, row)
            if group.periodic:
                with write_loop(b, WORD(0), width, period) as begin:
                    self._write_columns(starts, offsets, period, begin)
            else:
                self._write_columns(starts, offsets, width, None)
        b.ret_void()

    def _load_word(self, address: Any, k: int) -> Any:
        pointer = self.builder.add(address, WORD(WORD_BYTES * k))
        return self.builder.load(self.builder.inttoptr(pointer, WORD.as_pointer()))

    def _compute_starts(self, addresses: list[tuple[Any, Any]], row: Any) -> list[Any]:
        """Return the addresses of the first columns of a row."""
        b, rest, starts = self.builder, iter(addresses), []
        for kind in self.group.rows:
            begin, pitch = next(rest)
            if kind is RowKind.STRIDED:
                begin = b.add(begin, b.mul(row, pitch))
            elif kind is RowKind.INDEXED:
                index, index_pitch = next(rest)
                pointer = b.inttoptr(b.add(index, b.mul(row, index_pitch)), WORD.as_pointer())
                begin = b.add(begin, b.mul(b.load(pointer), pitch))
            starts.append(begin)
        return starts

    def _write_columns(self, starts: list[Any], offsets: list[Any], n: Any, shift: Any) -> None:
        """Write the loops over n columns.

        Args:
            shift: The first column, added to the rows that are not shared.
        """
        b, vector = self.builder, ir.VectorType(FLOAT, self.n_lanes)
        n_whole = b.and_(n, WORD(-self.n_lanes)) if self.group.ragged else n
        if shift is not None:
            moved = b.mul(shift, WORD(FLOAT_BYTES))
            starts = [
                start if kind is RowKind.SAME else b.add(start, moved)
                for start, kind in zip(starts, self.group.rows, strict=True)
            ]
        locate = partial(self._place, starts, offsets)
        with write_loop(b, WORD(0), n_whole, WORD(self.n_lanes)) as column:
            self._write_body(VectorArithmetic(b, vector), partial(locate, column, vector))
        if self.group.ragged:
            with write_loop(b, n_whole, n, WORD(1)) as column:
                self._write_body(VectorArithmetic(b, FLOAT), partial(locate, column, FLOAT))

    def _place(
        self, starts: list[Any], offsets: list[Any], at: Any, kind: Any, row: int, column: int
    ) -> Any:
        b = self.builder
        address = b.add(b.add(starts[row], offsets[column]), b.mul(at, WORD(FLOAT_BYTES)))
        return b.inttoptr(address, kind.as_pointer())

    def _write_body(self, arithmetic: VectorArithmetic, locate: Callable[[int, int], Any]) -> None:
        b, values = self.builder, dict[str, Any]()
        for k, load in enumerate(self.group.loads):
            values[f"x{k}"] = b.load(locate(*load), align=FLOAT_BYTES)
        for operation in self.group.operations:
            operands = [values[operand] for operand in operation.operands]
            if operation.operator in WITH_CONSTANT:
                operands.insert(0, arithmetic.number(operation.constant))
            write = OPERATORS.get(operation.operator) or WITH_CONSTANT[operation.operator]
            values[operation.name] = write(arithmetic, *operands)
        for store in self.group.stores:
            value, to = values[store.name], locate(store.row, store.column)
            if store.adds:
                value = arithmetic.add(b.load(to, align=FLOAT_BYTES), value)
            b.store(value, to, align=FLOAT_BYTES)
