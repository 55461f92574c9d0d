"""Matmul bound of a workload: its matmuls and no other work.

Every matmul with a parameter that a model's vertices need runs once per parameter for all vertices
of a mini-batch, as if no vertex depended on another; in training the two matmuls of its derivative
run too. It has no gathers, elementwise operators or lookups, and does not pack a parameter again
after an update. The throughput of a system divided by this one's is its
percentage of the matmul bound. On a GPU, cuBLAS multiplies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import llvmlite
import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled, get_address
from dynbatch.harness.compiler.pointers import read_word
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.contracts.model import Model, Weights, trace_functions
from dynbatch.harness.contracts.system import Clock, Counters, RunSettings
from dynbatch.harness.engine.cpu_kernels.blas import (
    OWN,
    Scratch,
    add_outer,
    multiply,
    prepare_libraries,
    require_library,
)
from dynbatch.harness.engine.cpu_kernels.context import FACTORS, LETTERS, N_WORDS, SIZES
from dynbatch.harness.engine.cpu_kernels.memory_kernels import allocate_aligned, pack_columns
from dynbatch.harness.engine.cpu_kernels.own_matmuls import (
    PACKED_ROWS,
    count_padded,
    is_packed,
    multiply_packed,
)
from dynbatch.harness.engine.switches import CHOICES
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.values.checked import CountOrNone, OneOf
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.vertex.operators import EDGE
from dynbatch.harness.vertex.program import VertexFunction
from dynbatch.systems.null_system import Control
from dynbatch.systems.plans.programs import Once

ON_CUDA = "dynbatch.systems.on_torch.bounds"
CUDA_CHECK = "dynbatch.harness.engine.torch_cuda"
OUTPUT = "output"
CONSTANTS = ("zeros", "ones")
EVERY_ROW = 2**30
NOT_PACKED = np.zeros(0, np.float32)
FLOAT_BYTES = 4

Matrix = Annotated[NDArray[np.float32], 2]
Packed = Annotated[NDArray[np.float32], 1]
Words = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ProductOptions:
    """Options of the matmul bound.

    Attributes:
        blas: library, as in the engine's switch (harness/engine/switches.py).
        rows_at_once: number of rows per call, 0 for all; fewer rows may be faster if they fit the
            cache.
    """

    blas: Annotated[str, OneOf(CHOICES["blas"])] = "auto"
    rows_at_once: CountOrNone = 0


@dataclass(frozen=True, slots=True)
class ParameterMatmul:
    """Matmul of rows with a parameter of shape (k, m) in a vertex function.

    Attributes:
        rows_each: number of rows per vertex, or per edge.
        of_edges: True if rows are counted per edge.
        passes_on: True if the left operand has a gradient.
    """

    function: str
    k: int
    m: int
    rows_each: int
    of_edges: bool
    passes_on: bool


class CpuMatmuls:
    """Matmuls of rows with parameters by compiled code."""

    def __init__(self, blas: str, threads: int, rows_at_once: int) -> None:
        self._multiplying = prepare_libraries(blas, threads)
        self._how = rows_at_once, make_context(self._multiplying.scratch)
        # The engine's own kernels have one thread.
        self._packs = self._multiplying.has_own_kernels and threads == 1
        self._packed: dict[tuple[int, bool], NDArray[np.float32]] = {}
        self.library = self._multiplying.names

    def place(self, array: NDArray[np.float32]) -> NDArray[np.float32]:
        return array

    def forward(self, x: Matrix, weight: Matrix, y: Matrix, n: int) -> None:
        """Compute y = x W of the first n rows."""
        forward(x, weight, self._pack(weight, n), y, n, *self._how)

    def backward(
        self, x: Matrix, weight: Matrix, dy: Matrix, gradient: Matrix, n: int, passes_on: bool
    ) -> None:
        """Compute the gradient x^T dy, and x = dy W^T if the left operand has a gradient."""
        packed = self._pack(weight, n, is_transposed=True)
        backward(x, weight, packed, dy, gradient, n, passes_on, *self._how)

    def _pack(self, weight: Matrix, n: int, *, is_transposed: bool = False) -> NDArray[np.float32]:
        """Return W or W^T as the engine packs it for n rows, made once; else an empty array."""
        k, m = weight.shape[::-1] if is_transposed else weight.shape
        n_rows = min(n, self._how[0])
        if not (self._packs and n_rows <= PACKED_ROWS and is_packed(k, m)):
            return NOT_PACKED
        key = get_address(weight), is_transposed
        if key not in self._packed:
            self._packed[key] = allocate_aligned((k * count_padded(m),))
            source = np.ascontiguousarray(weight.T) if is_transposed else weight
            pack_columns(get_address(source), k, m, get_address(self._packed[key]))
        return self._packed[key]

    def synchronize(self) -> None:
        """Do nothing: each call waits for its result."""


class Adapter(Control):
    """System that multiplies random arrays of the sizes that a mini-batch needs."""

    option_type = ProductOptions
    options: ProductOptions
    phases = ("construct", "forward", "backward")

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return the reason if the library is unavailable."""
        blas = cls.options_of(settings).blas
        if settings.device != "cpu":
            if blas != "auto":
                return f"blas={blas} is a library for CPUs; set system.options.blas=auto"
            reason: str | None = import_module(CUDA_CHECK).explain_no_cuda()
            return reason
        try:
            require_library()
        except UnsupportedTrial as error:
            return str(error)
        return None

    def prepare(self, model: Model, weights: Weights) -> None:
        """Collect the model's matmuls, and draw a random parameter for each."""
        super().prepare(model, weights)
        self._model = model
        self._n_rows: list[int] = []  # for the last mini-batch that was loaded
        self._provide = Once(self._provide_rows)
        self._products = [
            product
            for function in trace_functions(model).values()
            for product in list_matmuls(function)
        ]
        self._matmuls = self._make_matmuls()
        self._random = np.random.default_rng(self.settings.seed)
        self._factors = [self._draw_array(product.k, product.m) for product in self._products]
        self._gradients = [
            self._matmuls.place(np.empty((product.k, product.m), np.float32))
            for product in self._products
        ]
        self._x = [self._draw_array(1, product.k) for product in self._products]
        self._y = [self._draw_array(1, product.m) for product in self._products]

    def _make_matmuls(self) -> Any:
        at_once = self.options.rows_at_once or EVERY_ROW
        if self.settings.device != "cpu":
            return import_module(ON_CUDA).Matmuls(self.settings.device, at_once)
        return CpuMatmuls(self.options.blas, self.settings.threads, at_once)

    def compile_for(self, instances: Sequence[Any]) -> None:
        self._provide(instances)

    def load(self, instances: Sequence[Any]) -> None:
        self._n_rows = self._provide(instances)

    def _provide_rows(self, instances: Sequence[Any]) -> list[int]:
        """Count the rows of a mini-batch, which is not to be timed, and allocate their arrays."""
        mini_batch = self._model.mini_batch(instances)
        n_rows = [count_rows(product, mini_batch) for product in self._products]
        for arrays in (self._x, self._y):
            for i, (array, n) in enumerate(zip(arrays, n_rows, strict=True)):
                if len(array) < n:
                    arrays[i] = self._draw_array(n, array.shape[1])
        return n_rows

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Run all forward matmuls, then in training both matmuls of each derivative."""
        clock.mark("construct")
        sizes = list(zip(self._factors, self._x, self._y, self._n_rows, strict=True))
        for weight, x, y, n in sizes:
            self._matmuls.forward(x, weight, y, n)
        clock.mark("forward")
        if self.settings.mode != "train":
            return
        for product, gradient, (weight, x, y, n) in zip(
            self._products, self._gradients, sizes, strict=True
        ):
            self._matmuls.backward(x, weight, y, gradient, n, product.passes_on)
        clock.mark("backward")

    def synchronize(self) -> None:
        """Wait for the device, once there are arrays on it."""
        if hasattr(self, "_matmuls"):
            self._matmuls.synchronize()

    def counters(self) -> Counters:
        """Return the work of the last mini-batch, with one batch per matmul."""
        return Counters(len(self._products), None, 0, n_flop=self._count_flop())

    def _count_flop(self) -> int:
        """Count the floating-point operations of the last mini-batch; 0 before the first one."""
        n_flop = 0
        for product, n in zip(self._products, self._n_rows, strict=False):
            n_passes = 2 + product.passes_on if self.settings.mode == "train" else 1
            n_flop += 2 * product.k * product.m * n * n_passes
        return n_flop

    def effective_options(self) -> dict[str, str]:
        """Return the options, the library that multiplies and the work of the last mini-batch."""
        work = {"last mini-batch": f"{self._count_flop() / 1e9:.3g} GFLOP"}
        return super().effective_options() | {"blas": self._matmuls.library} | work

    def versions(self) -> dict[str, str]:
        """Return the versions of the compiler and of the matmul library."""
        return {"llvmlite": llvmlite.__version__, "blas": self._matmuls.library}

    def _draw_array(self, n: int, width: int) -> Any:
        return self._matmuls.place(self._random.standard_normal((n, width), dtype=np.float32))


def list_matmuls(function: VertexFunction) -> Iterator[ParameterMatmul]:
    """Yield the matmuls with a parameter.

    Matmuls of two values of a vertex are excluded: each vertex has its own.
    """
    for node in function.nodes:
        if node.op != "matmul":
            continue
        x, weight = (function.nodes[i] for i in node.inputs)
        k, m = weight.shape
        passes_on = x.op not in CONSTANTS
        yield ParameterMatmul(function.name, k, m, x.width // k, x.domain == EDGE, passes_on)


def count_rows(product: ParameterMatmul, mini_batch: MiniBatch) -> int:
    """Return the number of rows that a matmul multiplies in a mini-batch."""
    if product.function == OUTPUT:
        return len(mini_batch.outputs) * product.rows_each
    graph = mini_batch.graph
    if product.function not in graph.type_names:
        return 0
    chosen = mini_batch.functions == graph.type_names.index(product.function)
    n_each = np.diff(graph.arg_start)[chosen] if product.of_edges else chosen[chosen]
    return int(n_each.sum()) * product.rows_each


def make_context(scratch: Scratch) -> Words:
    """Return a kernel context with the addresses of the scratch arrays.

    The other words are for teams of threads and stay 0.
    """
    context = np.zeros(N_WORDS, np.int64)
    context[[SIZES, LETTERS, FACTORS]] = [get_address(array) for array in scratch]
    return context


@compiled
def forward(
    x: Matrix, weight: Matrix, packed: Packed, y: Matrix, n: int, at_once: int, context: Words
) -> None:
    """Compute y = x W."""
    k, m = weight.shape
    for i in range(0, n, at_once):
        _multiply(x, i, min(at_once, n - i), k, weight, packed, 0, y, m, context)


@compiled
def backward(
    x: Matrix, weight: Matrix, packed: Packed, dy: Matrix, gradient: Matrix, n: int,
    passes_on: bool, at_once: int, context: Words,
) -> None:  # fmt: skip
    """Compute the gradient x^T dy, and x = dy W^T if the left operand has a gradient."""
    k, m = weight.shape
    for i in range(0, n, at_once):
        n_now = min(at_once, n - i)
        add_outer(
            get_address(context), get_address(x[i]), FLOAT_BYTES * k, k, get_address(dy[i]),
            FLOAT_BYTES * m, m, n_now, get_address(gradient), 1 if i > 0 else 0,
        )  # fmt: skip
        if passes_on:
            _multiply(dy, i, n_now, m, weight, packed, 1, x, k, context)


@helper
def _multiply(
    x: Matrix, i: int, n: int, k: int, weight: Matrix, packed: Packed, transposed: int, y: Matrix,
    m: int, context: Words,
) -> None:  # fmt: skip
    """Multiply n rows from row i, by the packed copy if there is one; x (n, k), y (n, m)."""
    from_x, to_y = get_address(x[i]), get_address(y[i])
    if len(packed) > 0:
        kernels = read_word(context[SIZES], OWN)
        multiply_packed(
            kernels, from_x, FLOAT_BYTES * k, n, get_address(packed), k, m, to_y, FLOAT_BYTES * m,
            0, 0,
        )  # fmt: skip
    else:
        rows, columns = weight.shape
        multiply(
            get_address(context), from_x, FLOAT_BYTES * k, n, get_address(weight), rows, columns,
            transposed, to_y, FLOAT_BYTES * m, 0, 0,
        )  # fmt: skip
