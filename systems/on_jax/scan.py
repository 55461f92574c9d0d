"""JAX, written as an expert would: padded schedules, with one compilation per mini-batch size."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jaxlib.version
import numpy as np
from jax import Array
from jax._src import compilation_cache
from jax._src.compilation_cache_interface import CacheInterface
from numpy.typing import NDArray

from dynbatch.harness.compiler.object_code import get_host_target
from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.networks import explain_unrunnable, load_network
from dynbatch.harness.contracts.system import (
    Clock,
    Counters,
    Parameters,
    Result,
    RunSettings,
    System,
)
from dynbatch.harness.machine.caches import make_cache_folder, read_cached, write_cached
from dynbatch.harness.machine.facts import hash_cpu
from dynbatch.harness.values.checked import Count, CountOrNone

Vectors = Mapping[str, NDArray[np.integer]]
Lengths = tuple[tuple[str, int], ...]
NETWORKS = "dynbatch.systems.on_jax.models:NETWORKS"
Program = Callable[..., Any]  # takes network, plan, learning rate, weights and ids
ON_CPU = {"PJRT_NPROC": "{threads}", "NPROC": "{threads}"}  # read when XLA's client is created
FOLDER = "jax"
OPTIONS = {
    "jax_persistent_cache_min_compile_time_secs": 0.2,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@dataclass(frozen=True, slots=True)
class ProgramInputs:
    """Index vectors of a mini-batch, padded to the sizes that its program is compiled for.

    Attributes:
        sizes: static sizes that the network reads; together with the lengths they select the
            program.
        lengths: name and number of entries of each vector.
        ids: all vectors concatenated, so that one copy transfers them to the device.
        outputs: rows of the outputs, in the order of MiniBatch.outputs.
    """

    sizes: Hashable
    lengths: Lengths
    ids: NDArray[np.int32]
    outputs: slice | NDArray[np.integer]

    @property
    def program(self) -> tuple[Hashable, Lengths]:
        """The key of the compiled program."""
        return self.sizes, self.lengths


def pack_inputs(
    sizes: Hashable, outputs: slice | NDArray[np.integer], vectors: Vectors
) -> ProgramInputs:
    """Concatenate the vectors."""
    lengths = tuple((name, len(vector)) for name, vector in vectors.items())
    return ProgramInputs(
        sizes, lengths, np.concatenate([*vectors.values()], dtype=np.int32), outputs
    )


def round_up(n: int, multiple: int) -> int:
    """Return n rounded up to a multiple, at least one multiple."""
    return max(multiple, -(-n // multiple) * multiple)


def pad_vector(vector: NDArray[np.integer], n: int, value: int) -> NDArray[np.int32]:
    """Return the vector, padded with `value` to n entries."""
    longer = np.full(n, value, dtype=np.int32)
    longer[: len(vector)] = vector
    return longer


def scatter_values(
    at: NDArray[np.integer], values: NDArray[np.integer], n: int, rest: int
) -> NDArray[np.int32]:
    """Return a vector (n,) with values at the indices `at`, and `rest` elsewhere."""
    result = np.full(n, rest, dtype=np.int32)
    result[at] = values
    return result


class Given(NamedTuple):
    """Inputs of a loss.

    Attributes:
        weights: dense weights.
        vectors: looked-up rows, by table.
        ids: index vectors.
        sizes: static sizes.
        tables: the tables, for networks that look up rows step by step. Only `vectors` have
            gradients.
    """

    weights: Mapping[str, Array]
    vectors: Mapping[str, Array]
    ids: Mapping[str, Array]
    sizes: Any
    tables: Mapping[str, Array]


class Network(Protocol):
    """One model in JAX, a class of the table NETWORKS.

    Attributes:
        tables: names of lookup tables, with the names of their ids. `loss` gets the looked-up rows
            as `vectors`, and only those rows have a gradient and are updated.
    """

    tables: Mapping[str, str]

    def __init__(self, model: Model, options: Any) -> None: ...

    def plan(self, instances: Sequence[Any]) -> ProgramInputs:
        """Plan a mini-batch in NumPy."""

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and the input of `outputs`."""

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Return the outputs of all rows; untimed."""


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Options of padding.

    Attributes:
        widths: maximum number of widths for the columns of sentences and lattices, or the chunks of
            trees. More widths reduce padding and increase compile time.
        multiple: multiple to which numbers of rows are rounded up, so that few programs are
            compiled.
        chunk: maximum number of tree vertices, or of words of lattices, that are computed together;
            0 selects 64 to 256 by the number of vertices, and 16 words.
    """

    widths: Count = 8
    multiple: Count = 64
    chunk: CountOrNone = 0


class Adapter(System):
    """Adapter for the table NETWORKS: programs compiled for padded shapes, trained with plain SGD.

    Chunks of trees and steps of sentences, lattices, decoders and parsers are loops within one
    program: `fori_loop`s whose trip counts are data, so that one program serves many lengths. JAX
    has no reverse-mode derivative of these, so their derivatives are written by hand
    (jax.custom_vjp), with one matmul over all rows per weight gradient.

    Forward, backward and update are one program, which updates weights in place. Its parts are not
    separable: only `construct` is reported (and `forward` in inference). Logits and gradients are
    available only after run(update=False), because the program with an update does not return them.
    Compiled programs are cached on disk across processes, which shortens compile_s.
    """

    framework = "jax"
    option_type = ScanOptions
    options: ScanOptions

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        training = settings.mode == "train"
        self.phases = ("construct",) if training else ("construct", "forward")
        _prepare_process(settings)
        self._device = jax.devices(settings.device)[0]
        self._compiler_options = choose_compiler_options(self._device.platform)
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._weights: dict[str, Array] = {}
        self._loss: Any = None

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return the reason if CUDA is missing or the model is not written for JAX."""
        if settings.device == "cuda" and not _has_cuda(settings):
            return "jax finds no CUDA device"
        return explain_unrunnable(model, NETWORKS)

    def prepare(self, model: Model, weights: Weights) -> None:
        """Copy the weights to the device; programs are compiled when shapes are known."""
        self._network: Network = load_network(NETWORKS, model.name)(model, self.options)
        self._weights = {
            name: jax.device_put(np.array(values), self._device) for name, values in weights.items()
        }

    def compile_for(self, instances: Sequence[Any]) -> None:
        """Compile the timed program for a mini-batch's shapes, and no other program."""
        self._get_program(self._network.plan(instances), self._timed)

    def n_compilations(self) -> int:
        """Return the number of compiled programs; after `compile_for`, those of timed passes."""
        return len(self._programs)

    def load(self, instances: Sequence[Any]) -> None:
        self._instances = instances

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Plan the mini-batch, then run one program."""
        self._plan = self._network.plan(self._instances)
        kind = self._timed if update else self._untimed
        program = self._get_program(self._plan, kind)
        clock.mark("construct")
        if kind is _step:
            self._weights, self._loss = program(self._weights, self._plan.ids)
            self._found = None
        else:
            self._loss, *self._found = program(self._weights, self._plan.ids)
        if self.settings.mode == "infer":
            clock.mark("forward")

    @property
    def _timed(self) -> Program:
        return _step if self.settings.mode == "train" else _loss

    @property
    def _untimed(self) -> Program:
        return _gradients if self.settings.mode == "train" else _loss

    def _get_program(self, plan: ProgramInputs, kind: Program) -> Callable[..., Any]:
        key = kind, plan.program
        if key not in self._programs:
            self._programs[key] = self._compile_program(plan, kind)
        return self._programs[key]

    def _compile_program(self, plan: ProgramInputs, kind: Program) -> Callable[..., Any]:
        function = partial(kind, self._network, plan, self.settings.learning_rate)
        program = jax.jit(function, donate_argnums=(0,) if kind is _step else ())
        lowered = program.lower(self._weights, plan.ids)
        compiled: Callable[..., Any] = lowered.compile({**self._compiler_options})
        return compiled

    def result(self) -> Result:
        """Return loss, outputs and, in training, dense gradients of a run without an update."""
        if self._found is None:
            raise RuntimeError("a step returns no outputs; call run(update=False) before result()")
        hidden, *gradients = self._found
        outputs = np.asarray(self._network.outputs(self._weights, hidden))
        dense = self._to_dense_gradients(*gradients) if gradients else {}
        return Result(self.last_loss(), outputs[self._plan.outputs], dense, self.counters())

    def _to_dense_gradients(self, of_weights: Any, of_vectors: Any) -> Weights:
        """Return gradients in the parameters' shapes; those of looked-up rows are added."""
        gradients = {name: np.asarray(value) for name, value in of_weights.items()}
        ids = _split(self._plan.ids, self._plan)
        for table, rows in self._network.tables.items():
            gradients[table] = np.zeros(self._weights[table].shape, np.float32)
            np.add.at(gradients[table], ids[rows], np.asarray(of_vectors[table]))
        return gradients

    def parameters(self) -> Parameters:
        return {name: np.array(value) for name, value in self._weights.items()}

    def last_loss(self) -> float:
        """Return the loss of the last run."""
        return float(self._loss)

    def counters(self) -> Counters:
        """Return no counters, because JAX does not count its work."""
        return Counters()

    def synchronize(self) -> None:
        """Wait for the last program's loss and weights."""
        jax.block_until_ready((self._weights, self._loss))  # type: ignore[no-untyped-call]

    def peak_memory_bytes(self) -> int | None:
        """Return the peak of CUDA memory; None on the CPU, where the process's peak counts."""
        statistics = self._device.memory_stats()
        return int(statistics["peak_bytes_in_use"]) if statistics else None

    def effective_options(self) -> dict[str, str]:
        """Return the options, with the settings of XLA."""
        precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
        return super().effective_options() | {
            "matmul precision": str(precision),
            "threads of XLA": os.environ["PJRT_NPROC"],
            **{name: str(value) for name, value in self._compiler_options.items()},
            **({"memory": "taken as needed"} if self._device.platform != "cpu" else {}),
        }

    def versions(self) -> dict[str, str]:
        """Return build facts of JAX."""
        return {
            "jax": jax.__version__,
            "jaxlib": jaxlib.version.__version__,
            "xla": str(self._device.client.platform_version),
        }


def choose_compiler_options(platform: str) -> dict[str, str | bool]:
    """Return XLA's options other than its defaults, for a platform.

    XLA prefers vectors of 256 bits. On Intel's processors and AMD's Zen 4 and 5, most models are
    faster with 512 (Zen 4: inference of lattices 1.07, of the parser 1.04 and of trees 1.03 times,
    all others 1.00 to 1.02). On a GPU, XLA tries many kernels for every matmul; on an H200,
    Tree-LSTM's programs were not compiled after 150 s.
    """
    if platform in ("gpu", "cuda"):
        return {"xla_gpu_autotune_level": "0", "xla_gpu_enable_triton_gemm": False}
    is_wide = platform == "cpu" and "+avx512f" in get_host_target().features
    return {"xla_cpu_prefer_vector_width": "512"} if is_wide else {}


def _step(
    network: Network, plan: ProgramInputs, learning_rate: float, weights: Any, ids: Any
) -> Any:
    """Return the weights after an SGD step, and the loss."""
    loss, _, of_weights, of_vectors = _gradients(network, plan, learning_rate, weights, ids)
    ids = _split(ids, plan)
    stepped = {name: weights[name] - learning_rate * d for name, d in of_weights.items()}
    for table, rows in network.tables.items():
        stepped[table] = weights[table].at[ids[rows]].add(-learning_rate * of_vectors[table])
    return {name: stepped[name] for name in weights}, loss


def _gradients(
    network: Network, plan: ProgramInputs, learning_rate: float, weights: Any, ids: Any
) -> Any:
    """Return loss, input of `outputs`, and gradients of dense weights and of looked-up rows."""
    ids = _split(ids, plan)
    dense = {name: value for name, value in weights.items() if name not in network.tables}
    tables = {table: weights[table] for table in network.tables}
    vectors = {table: weights[table][ids[rows]] for table, rows in network.tables.items()}

    def compute_loss(dense: Any, vectors: Any) -> tuple[Array, Array]:
        return network.loss(Given(dense, vectors, ids, plan.sizes, tables))

    results, gradients = jax.value_and_grad(compute_loss, (0, 1), has_aux=True)(dense, vectors)
    return *results, *gradients


def _loss(
    network: Network, plan: ProgramInputs, learning_rate: float, weights: Any, ids: Any
) -> Any:
    """Return the loss, and the input of `outputs`."""
    ids = _split(ids, plan)
    vectors = {table: weights[table][ids[rows]] for table, rows in network.tables.items()}
    return network.loss(Given(weights, vectors, ids, plan.sizes, weights))


def _split(ids: Any, plan: ProgramInputs) -> dict[str, Any]:
    """Return each vector by its name."""
    ends = np.cumsum([length for _, length in plan.lengths])
    return {
        name: ids[end - length : end]
        for (name, length), end in zip(plan.lengths, ends, strict=True)
    }


def _prepare_process(settings: RunSettings) -> None:
    """Set options that XLA reads only when its client is created."""
    if settings.device == "cpu":
        for name, value in ON_CPU.items():
            os.environ[name] = value.format(threads=settings.threads)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    set_option: Callable[[str, Any], None] = jax.config.update
    set_option("jax_default_matmul_precision", "highest")  # no TF32
    keep_programs()
    if settings.device == "cpu":
        set_option("jax_platforms", "cpu")  # do not initialize a GPU


def _has_cuda(settings: RunSettings) -> bool:
    _prepare_process(settings)
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False


class KeptPrograms(CacheInterface):
    """Compilation cache for JAX, by a hash of all inputs of a compilation.

    The programs of a Tree-LSTM take half a minute to compile. JAX's own cache warns about an
    unreadable entry, never replaces it, and compiles again in every later process. It also writes
    entries in place, so that another process may read an incomplete one. Entries of other processor
    types are ignored.
    """

    def __init__(self, folder: str) -> None:
        self._path, self._cpu = Path(folder), hash_cpu()

    def get(self, key: str) -> bytes | None:
        """Return a stored program; None if it is absent or damaged."""
        return read_cached(self._path / f"{self._cpu}.{key}")

    def put(self, key: str, value: bytes) -> None:
        """Store a program, and replace a damaged one."""
        write_cached(self._path / f"{self._cpu}.{key}", value)


def keep_programs() -> None:
    """Let JAX cache the programs that it compiles from now on, if a directory is available."""
    folder = make_cache_folder(FOLDER)
    if folder is None:
        return
    for name, value in {"jax_compilation_cache_dir": str(folder), **OPTIONS}.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    compilation_cache.get_file_cache = _make_cache


def _make_cache(path: str) -> tuple[CacheInterface, str]:
    return KeptPrograms(path), path
