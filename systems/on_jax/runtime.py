"""What every network in JAX needs: device and threads, weights, programs and their number."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import jax
import jaxlib.version
import numpy as np
from jax import Array

from harness.contracts.model import Model, Weights
from harness.contracts.networks import load_network, why_not_written
from harness.contracts.system import Clock, Counters, Parameters, Result, RunSettings, System
from systems.on_jax.kept_programs import keep_programs
from systems.on_jax.parts.plan import Plan

NETWORKS = "systems.on_jax.models:NETWORKS"
ON_CPU = {"PJRT_NPROC": "{threads}", "NPROC": "{threads}"}  # read when XLA's client is made


class Network(Protocol):
    """One model in JAX, a class of the table NETWORKS.

    tables: names of weights that are looked up, and of the ids that they are looked up by; `loss`
    gets the looked-up rows as `vectors`, and only those rows have a gradient and are updated.
    """

    tables: Mapping[str, str]

    def __init__(self, model: Model, options: Any) -> None: ...

    def plan(self, instances: Sequence[Any]) -> Plan:
        """Plan a mini-batch, in NumPy."""

    def loss(
        self,
        weights: Mapping[str, Array],
        vectors: Mapping[str, Array],
        ids: Mapping[str, Array],
        sizes: Any,
    ) -> tuple[Array, Array]:
        """Summed loss, and what `outputs` reads."""

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Outputs of all rows; they are asked for when nothing is timed."""


class JaxSystem(System):
    """A network of the table NETWORKS, compiled for padded shapes and trained with plain SGD.

    Forward, backward and update are one program, whose weights are updated where they lie. Its
    parts cannot be told apart: phases but `construct` (and `forward`, where nothing else is) are
    not told. Logits and gradients are there after run(update=False) only: no other program returns
    them. Programs are kept on disk between processes, where compile_s is shorter for it.
    """

    framework = "jax"

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        training = settings.mode == "train"
        self.phases = ("construct",) if training else ("construct", "forward")
        _prepare_process(settings)
        self._device = jax.devices(settings.device)[0]
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._weights: dict[str, Array] = {}
        self._loss: Any = None

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """CUDA has to be there, and the model to be written for JAX."""
        if settings.device == "cuda" and not _sees_cuda(settings):
            return "jax sees no CUDA device here"
        return why_not_written(model.name, NETWORKS)

    def prepare(self, model: Model, weights: Weights) -> None:
        """Copy the weights to the device; programs are compiled when shapes are known."""
        self._network: Network = load_network(NETWORKS, model.name)(model, self.options)
        self._weights = {
            name: jax.device_put(np.array(values), self._device) for name, values in weights.items()
        }

    def compile_for(self, instances: Sequence[Any]) -> None:
        """Compile the timed program for a mini-batch's shapes, and no other."""
        self._program(self._network.plan(instances), self._timed)

    def n_compilations(self) -> int:
        """Programs compiled so far: after `compile_for` alone, those of the timed passes."""
        return len(self._programs)

    def load(self, instances: Sequence[Any]) -> None:
        """Take the next mini-batch."""
        self._instances = instances

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Plan, then run one program."""
        self._plan = self._network.plan(self._instances)
        kind = self._timed if update else self._untimed
        program = self._program(self._plan, kind)
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

    def _program(self, plan: Plan, kind: Program) -> Callable[..., Any]:
        key = kind, plan.program
        if key not in self._programs:
            self._programs[key] = self._compiled(plan, kind)
        return self._programs[key]

    def _compiled(self, plan: Plan, kind: Program) -> Callable[..., Any]:
        function = partial(kind, self._network, plan, self.settings.learning_rate)
        program = jax.jit(function, donate_argnums=(0,) if kind is _step else ())
        compiled: Callable[..., Any] = program.lower(self._weights, plan.ids).compile()
        return compiled

    def result(self) -> Result:
        """Loss, outputs and, in mode "train", dense gradients, of a run without an update."""
        if self._found is None:
            raise RuntimeError("a step returns no outputs; call run(update=False) before result()")
        hidden, *gradients = self._found
        outputs = np.asarray(self._network.outputs(self._weights, hidden))
        dense = self._dense(*gradients) if gradients else {}
        return Result(self.last_loss(), outputs[self._plan.outputs], dense, self.counters())

    def _dense(self, of_weights: Any, of_vectors: Any) -> Weights:
        """Gradients in the parameters' own shapes; those of looked-up rows are added up."""
        found = {name: np.asarray(value) for name, value in of_weights.items()}
        ids = _split(self._plan.ids, self._plan)
        for table, rows in self._network.tables.items():
            found[table] = np.zeros(self._weights[table].shape, np.float32)
            np.add.at(found[table], ids[rows], np.asarray(of_vectors[table]))
        return found

    def parameters(self) -> Parameters:
        """Copies."""
        return {name: np.array(value) for name, value in self._weights.items()}

    def last_loss(self) -> float:
        """The loss of the last run."""
        return float(self._loss)

    def counters(self) -> Counters:
        """JAX does not count its work."""
        return Counters()

    def synchronize(self) -> None:
        """Wait for the last program's loss and weights."""
        jax.block_until_ready((self._weights, self._loss))  # type: ignore[no-untyped-call]

    def peak_memory_bytes(self) -> int | None:
        """Peak of CUDA memory; None on the CPU, where the process's own peak counts."""
        statistics = self._device.memory_stats()
        return int(statistics["peak_bytes_in_use"]) if statistics else None

    def in_force(self) -> dict[str, str]:
        """How XLA runs."""
        precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
        return super().in_force() | {
            "matmul precision": str(precision),
            "threads of XLA": os.environ["PJRT_NPROC"],
            **({"memory": "taken as needed"} if self._device.platform != "cpu" else {}),
        }

    def versions(self) -> dict[str, str]:
        """Build facts of JAX."""
        return {
            "jax": jax.__version__,
            "jaxlib": jaxlib.version.__version__,
            "xla": str(self._device.client.platform_version),
        }


Program = Callable[..., Any]  # of network, plan, learning rate, weights and ids


def _step(network: Network, plan: Plan, learning_rate: float, weights: Any, ids: Any) -> Any:
    """Weights after a step of SGD, and the loss."""
    loss, _, of_weights, of_vectors = _gradients(network, plan, learning_rate, weights, ids)
    ids = _split(ids, plan)
    stepped = {name: weights[name] - learning_rate * d for name, d in of_weights.items()}
    for table, rows in network.tables.items():
        stepped[table] = weights[table].at[ids[rows]].add(-learning_rate * of_vectors[table])
    return {name: stepped[name] for name in weights}, loss


def _gradients(network: Network, plan: Plan, learning_rate: float, weights: Any, ids: Any) -> Any:
    """The loss, what outputs are made of, and gradients of dense weights and of looked-up rows."""
    ids = _split(ids, plan)
    dense = {name: value for name, value in weights.items() if name not in network.tables}
    vectors = {table: weights[table][ids[rows]] for table, rows in network.tables.items()}

    def loss_of(dense: Any, vectors: Any) -> tuple[Array, Array]:
        return network.loss(dense, vectors, ids, plan.sizes)

    found, gradients = jax.value_and_grad(loss_of, (0, 1), has_aux=True)(dense, vectors)
    return *found, *gradients


def _loss(network: Network, plan: Plan, learning_rate: float, weights: Any, ids: Any) -> Any:
    """The loss, and what outputs are made of."""
    ids = _split(ids, plan)
    vectors = {table: weights[table][ids[rows]] for table, rows in network.tables.items()}
    return network.loss(weights, vectors, ids, plan.sizes)


def _split(ids: Any, plan: Plan) -> dict[str, Any]:
    """Each vector by its name."""
    ends = np.cumsum([length for _, length in plan.lengths])
    return {
        name: ids[end - length : end]
        for (name, length), end in zip(plan.lengths, ends, strict=True)
    }


def _prepare_process(settings: RunSettings) -> None:
    """Set what XLA reads when its client is made; later it changes nothing."""
    for name, value in ON_CPU.items():
        os.environ[name] = value.format(threads=settings.threads)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    set_option: Callable[[str, Any], None] = jax.config.update
    set_option("jax_default_matmul_precision", "highest")  # no TF32
    keep_programs()
    if settings.device == "cpu":
        set_option("jax_platforms", "cpu")  # a GPU is left alone


def _sees_cuda(settings: RunSettings) -> bool:
    _prepare_process(settings)
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False
