"""Kernels and elementwise groups of the CPU backend, called one by one on arrays of a test."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import Compiled
from dynbatch.harness.compiler.object_code import Loaded, load_ir
from dynbatch.harness.compiler.pointers import call, get_address
from dynbatch.harness.engine.cpu_kernels import context
from dynbatch.harness.engine.cpu_kernels.blas import Scratch
from dynbatch.harness.engine.cpu_kernels.elementwise import (
    SYMBOL,
    ColumnStore,
    Group,
    RowKind,
    write_group,
)
from dynbatch.harness.engine.cpu_kernels.vectors import LANES
from dynbatch.harness.engine.lowering.plan import Operation


def drawn(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


class Reported:
    """Context of a single thread, which kernels get by its address, and its counters."""

    def __init__(self, thread: int = 0, n_threads: int = 1, scratch: Scratch | None = None) -> None:
        self.tally = np.zeros(context.N_TALLY, np.int64)
        self._words = np.zeros(context.N_WORDS, np.int64)
        self._words[[context.THREAD, context.N_THREADS]] = thread, n_threads
        self._words[context.TALLY] = get_address(self.tally)
        self._scratch = scratch
        if scratch is not None:
            places = [context.SIZES, context.LETTERS, context.FACTORS]
            self._words[places] = list(map(get_address, scratch))
        self.address = get_address(self._words)


def run_kernel(
    kernel: Compiled[..., Any] | int,
    operands: Sequence[NDArray[Any]],
    constants: Sequence[int],
    n: int,
    reported: Reported | None = None,
) -> None:
    """Run a kernel, or the code at an address, for n rows; operands may be parts of wider rows."""
    reported = reported or Reported()
    places = np.array([(get_address(one), one.strides[0]) for one in operands], np.int64)
    words = np.array([*constants, 0], np.int64)
    address = kernel.address if isinstance(kernel, Compiled) else kernel
    call(address, (reported.address, get_address(places), get_address(words), n))


# --- groups of elementwise operators ---

Floats = NDArray[np.float32]
GUARD, UNTOUCHED = 3, np.float32(-77.0)  # number and value of the columns after the written ones


def text_of(group: Group, n_lanes: int = LANES) -> str:
    """Return the LLVM IR of a group."""
    module = ir.Module()
    write_group(module, group, n_lanes)
    return str(module)


@functools.cache
def _load(group: Group, n_lanes: int) -> Loaded:
    return load_ir(text_of(group, n_lanes), as_written=True)


def run_group(
    group: Group,
    operands: Sequence[NDArray[Any]],
    sizes: Sequence[int],
    n: int,
    n_lanes: int = LANES,
) -> None:
    """Run a group for n rows; sizes are its width, the period if any, and offsets in bytes."""
    run_kernel(_load(group, n_lanes).find_address(SYMBOL), operands, sizes, n)


def group_of_one(operator: str, n_inputs: int, constant: float, *, ragged: bool) -> Group:
    """Return the group of one operator, with inputs and result in separate rows."""
    inputs = tuple(f"x{k}" for k in range(n_inputs))
    return Group(
        (RowKind.STRIDED,) * (n_inputs + 1),
        tuple((k, 0) for k in range(n_inputs)),
        (Operation("v0", operator, inputs, constant),),
        (ColumnStore(n_inputs, 0, "v0"),),
        n_columns=1,
        ragged=ragged,
    )


def computed(operator: str, *inputs: Floats, constant: float = 0.0, n_lanes: int = LANES) -> Floats:
    """Return the value of one operator of equal-shaped matrices; check that only it is written."""
    n, width = inputs[0].shape
    out = np.full((n + 1, width + GUARD), UNTOUCHED)
    group = group_of_one(operator, len(inputs), constant, ragged=width % n_lanes != 0)
    run_group(group, (*inputs, out), (width, 0), n, n_lanes)
    assert (out[n] == UNTOUCHED).all()
    assert (out[:, width:] == UNTOUCHED).all()
    return out[:n, :width].copy()


# In float64, clipped to the range of the float32 kernels.
EXPECTED: Mapping[str, Callable[..., Any]] = {
    "bias": np.add,
    "add": np.add,
    "sum": lambda *values: functools.reduce(np.add, values),
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "sigmoid": lambda x: 0.5 + 0.5 * np.tanh(0.5 * x),
    "tanh": np.tanh,
    "relu": lambda x: np.where(x < 0, 0.0, x),
    "exp": lambda x: np.exp(np.clip(x, -87.0, 88.0)),
    "log": np.log,
    "square": np.square,
    "sqrt": np.sqrt,
    "sigmoid_gradient": lambda dy, y: dy * y * (1.0 - y),
    "tanh_gradient": lambda dy, y: dy * (1.0 - y * y),
    "relu_gradient": lambda dy, y: np.where(y > 0, dy, 0.0),
    "scale": lambda x, c: c * x,
    "shift": lambda x, c: c + x,
}


def expected(operator: str, *values: Any) -> Any:
    """Return the float64 value of an operator; a constant is its last operand."""
    with np.errstate(all="ignore"):
        return EXPECTED[operator](*(np.asarray(one, np.float64) for one in values))
