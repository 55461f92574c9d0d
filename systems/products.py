"""The products of a workload and nothing else: the ceiling of any strategy on this machine.

Every product with a parameter that a model's vertices need, each parameter once for all vertices of
a mini-batch, as if no vertex had to wait for another; in training also the two products of its
derivative. No gathers, no elementwise work, no lookups. No batching does better with this library,
as no batch has more rows; what a system reaches of it is its share of the ceiling.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import llvmlite
import numpy as np
from numpy.typing import NDArray

from harness.compiler.compiled import address_of, compiled
from harness.contracts.model import Model, Weights, traced_functions
from harness.contracts.system import Clock, Counters, RunSettings
from harness.engine.cpu_kernels.blas import Scratch, add_outer, library_of, multiply, multiplying
from harness.engine.cpu_kernels.context import FACTORS, LETTERS, N_WORDS, SIZES
from harness.engine.switches import CHOICES
from harness.errors import UnsupportedTrial
from harness.values.checked import CountOrNone, OneOf
from harness.values.graph import MiniBatch
from harness.vertex.operators import EDGE
from harness.vertex.program import VertexFunction
from systems.null_system import Control

OUTPUT = "output"
CONSTANTS = ("zeros", "ones")
EVERY_ROW = 2**30
FLOAT_BYTES = 4

Matrix = Annotated[NDArray[np.float32], 2]
Words = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ProductOptions:
    """blas: as the engine's switch (harness/engine/switches.py).

    rows_at_once: how many rows a call multiplies, 0 for all; what stays in the cache may be faster.
    """

    blas: Annotated[str, OneOf(CHOICES["blas"])] = "auto"
    rows_at_once: CountOrNone = 0


@dataclass(frozen=True, slots=True)
class Product:
    """Rows times a parameter (k, m) in a vertex function.

    rows_each: of one vertex, or of one edge. passes_on: whether what is multiplied has a gradient.
    """

    function: str
    k: int
    m: int
    rows_each: int
    of_edges: bool
    passes_on: bool


class Adapter(Control):
    """Multiplies arrays of the sizes that a mini-batch needs."""

    option_type = ProductOptions
    options: ProductOptions
    phases = ("construct", "forward", "backward")

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Where there is no such library, or it would be for another device."""
        if settings.device != "cpu":
            return "its products are those of compiled code on a CPU; use device=cpu"
        try:
            library_of(cls.options_of(settings).blas)
        except UnsupportedTrial as error:
            return str(error)
        return None

    def prepare(self, model: Model, weights: Weights) -> None:
        """Find the products, and random parameters for each."""
        super().prepare(model, weights)
        self._model = model
        self._n_rows: list[int] = []  # of the mini-batch that was loaded last
        self._known: dict[int, tuple[Sequence[Any], list[int]]] = {}
        self._products = [
            product
            for function in traced_functions(model).values()
            for product in products_of(function)
        ]
        self._multiplying = multiplying(self.options.blas, self.settings.threads)
        self._context = context_of(self._multiplying.scratch)
        self._random = np.random.default_rng(self.settings.seed)
        self._factors = [self._array(product.k, product.m) for product in self._products]
        self._gradients = [np.empty_like(factor) for factor in self._factors]
        self._x = [self._array(1, product.k) for product in self._products]
        self._y = [self._array(1, product.m) for product in self._products]

    def compile_for(self, instances: Sequence[Any]) -> None:
        """Count its rows, which is no work of products, and make room."""
        mini_batch = self._model.mini_batch(instances)
        n_rows = [n_rows_of(product, mini_batch) for product in self._products]
        self._known[id(instances)] = (instances, n_rows)  # an id is another's once one has gone
        for arrays in (self._x, self._y):
            for i, (array, n) in enumerate(zip(arrays, n_rows, strict=True)):
                if len(array) < n:
                    arrays[i] = self._array(n, array.shape[1])

    def load(self, instances: Sequence[Any]) -> None:
        """Take one of those that it was compiled for."""
        if id(instances) not in self._known:
            self.compile_for(instances)
        _, self._n_rows = self._known[id(instances)]

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Forward, then both products of each derivative."""
        clock.mark("construct")
        how = self.options.rows_at_once or EVERY_ROW, self._context
        sizes = list(zip(self._factors, self._x, self._y, self._n_rows, strict=True))
        for weight, x, y, n in sizes:
            forward(x, weight, y, n, *how)
        clock.mark("forward")
        if self.settings.mode != "train":
            return
        for product, gradient, (weight, x, y, n) in zip(
            self._products, self._gradients, sizes, strict=True
        ):
            backward(x, weight, y, gradient, n, product.passes_on, *how)
        clock.mark("backward")

    def counters(self) -> Counters:
        """As many batches as there are parameters to multiply with."""
        return Counters(len(self._products), None, 0, n_flop=self._n_flop())

    def _n_flop(self) -> int:
        """Floating-point operations of the mini-batch that was loaded last; 0 before any was."""
        n_flop = 0
        for product, n in zip(self._products, self._n_rows, strict=False):
            n_passes = 2 + product.passes_on if self.settings.mode == "train" else 1
            n_flop += 2 * product.k * product.m * n * n_passes
        return n_flop

    def in_force(self) -> dict[str, str]:
        """Which library multiplies, and how much."""
        work = {"last mini-batch": f"{self._n_flop() / 1e9:.3g} GFLOP"}
        return super().in_force() | {"blas": self._multiplying.names} | work

    def versions(self) -> dict[str, str]:
        """Of the compiler, and of the library that multiplies."""
        return {"llvmlite": llvmlite.__version__, "blas": self._multiplying.names}

    def _array(self, n: int, width: int) -> NDArray[np.float32]:
        return self._random.standard_normal((n, width), dtype=np.float32)


def products_of(function: VertexFunction) -> Iterator[Product]:
    """Those with a parameter; where both are values of a vertex, every vertex has its own."""
    for node in function.nodes:
        if node.op != "matmul":
            continue
        x, weight = (function.nodes[i] for i in node.inputs)
        k, m = weight.shape
        passes_on = x.op not in CONSTANTS
        yield Product(function.name, k, m, x.width // k, x.domain == EDGE, passes_on)


def n_rows_of(product: Product, mini_batch: MiniBatch) -> int:
    """Rows that a mini-batch has of what is multiplied."""
    if product.function == OUTPUT:
        return len(mini_batch.outputs) * product.rows_each
    graph = mini_batch.graph
    if product.function not in graph.type_names:
        return 0
    chosen = mini_batch.functions == graph.type_names.index(product.function)
    n_each = np.diff(graph.arg_start)[chosen] if product.of_edges else chosen[chosen]
    return int(n_each.sum()) * product.rows_each


def context_of(scratch: Scratch) -> Words:
    """What products are told, of which all but their scratch is for teams of threads."""
    context = np.zeros(N_WORDS, np.int64)
    context[[SIZES, LETTERS, FACTORS]] = [address_of(array) for array in scratch]
    return context


@compiled
def forward(x: Matrix, weight: Matrix, y: Matrix, n: int, at_once: int, context: Words) -> None:
    """y = x W."""
    k, m = weight.shape
    for i in range(0, n, at_once):
        multiply(
            address_of(context), address_of(x[i]), FLOAT_BYTES * k, min(at_once, n - i),
            address_of(weight), k, m, 0, 0, address_of(y[i]), FLOAT_BYTES * m,
        )  # fmt: skip


@compiled
def backward(
    x: Matrix, weight: Matrix, dy: Matrix, gradient: Matrix, n: int, passes_on: bool, at_once: int,
    context: Words,
) -> None:  # fmt: skip
    """x = dy W^T, where something wants it, and the gradient x^T dy."""
    k, m = weight.shape
    for i in range(0, n, at_once):
        n_now = min(at_once, n - i)
        add_outer(
            address_of(context), address_of(x[i]), FLOAT_BYTES * k, k, address_of(dy[i]),
            FLOAT_BYTES * m, m, n_now, address_of(gradient), 1 if i > 0 else 0,
        )  # fmt: skip
        if passes_on:
            multiply(
                address_of(context), address_of(dy[i]), FLOAT_BYTES * m, n_now, address_of(weight),
                k, m, 1, 0, address_of(x[i]), FLOAT_BYTES * k,
            )  # fmt: skip
