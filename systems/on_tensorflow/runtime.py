"""Common parts of the TensorFlow systems: weights, traced programs, SGD, results and versions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

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

Feeds = tuple[Any, ...]  # NumPy arrays, or nested tuples of them
RATE = tf.TensorSpec([], tf.float32)  # the learning rate
Variables = Mapping[str, Any]  # tf.Variable or tensor, by shared name


class Network(ABC):
    """A model as computed by one system; its program is traced by tf.function.

    Attributes:
        signature: tf.TensorSpec of every feed, if one trace serves all shapes.
    """

    signature: Sequence[Any] = ()

    @abstractmethod
    def construct(self, instances: Sequence[Any]) -> Feeds:
        """Make the program's input arrays of a mini-batch with NumPy; timed."""

    @abstractmethod
    def forward(self, weights: Variables, *feeds: Any) -> tuple[Any, Any]:
        """Return the summed loss, and the tensors from which `outputs` are computed; traced."""

    def make_specs(self, feeds: Feeds) -> Sequence[Any]:
        """Return the tf.TensorSpec of every feed, nested like feeds; new ones need a new trace."""
        return self.signature

    def outputs(self, weights: Variables, kept: Any) -> Any:
        """Return rows in the order of MiniBatch.outputs from tensors of `forward`; untimed."""
        return kept


class TensorFlowSystem(System):
    """System that runs a network of the table `networks`: one tf.function per mini-batch.

    Forward, backward and update are one program, which is faster, so they are not separable in
    training. With a learning rate of 0 it updates nothing. XLA compiles forward and backward only:
    its update would write whole lookup tables.
    """

    framework = "tensorflow"
    networks: ClassVar[str]  # see dynbatch.harness.contracts.networks
    uses_xla: bool = False

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self.phases = ("construct",) if self._trains else ("construct", "forward")
        self._device = "/GPU:0" if settings.device == "cuda" else "/CPU:0"
        self._n_traces = 0
        set_up_process(settings)

    @property
    def _trains(self) -> bool:
        return self.settings.mode == "train"

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return the reason if CUDA is missing or the model is not written for TensorFlow."""
        if settings.device == "cuda" and not tf.config.list_physical_devices("GPU"):
            return "tensorflow finds no CUDA device"
        return explain_unrunnable(model, cls.networks)

    def prepare(self, model: Model, weights: Weights) -> None:
        """Build the network; its programs are traced when mini-batches are known."""
        with tf.device(self._device):
            self._weights = {name: tf.Variable(w, name=name) for name, w in weights.items()}
            self._rates = {r: tf.constant(r) for r in (0.0, self.settings.learning_rate)}
        self._net: Network = self._build(load_network(self.networks, model.name), model)
        self._gradients: Mapping[str, Any] = {}
        self._programs: dict[Any, Any] = {}
        if self._device == "/GPU:0":
            tf.config.experimental.reset_memory_stats("GPU:0")

    def _build(self, network: Callable[..., Network], model: Model) -> Network:
        return network(model)

    def load(self, instances: Sequence[Any]) -> None:
        self._instances = instances

    def compile_for(self, instances: Sequence[Any]) -> None:
        """Run the program without a step if its shapes are new, which traces and compiles it."""
        feeds = self._net.construct(instances)
        if self._make_specs(feeds) not in self._programs:
            self._compute(feeds, rate=0.0)

    def n_compilations(self) -> int | None:
        """Return the number of traces; with XLA each is compiled once, as its shapes are static."""
        return self._n_traces

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Run forward, and in training also backward and the SGD update, in one program."""
        feeds = self._net.construct(self._instances)
        clock.mark("construct")
        self._compute(feeds, rate=self.settings.learning_rate if update else 0.0)
        if not self._trains:
            clock.mark("forward")

    def _make_specs(self, feeds: Feeds) -> tuple[Any, ...]:
        """Return the key of the program for these feeds."""
        return tuple(self._net.make_specs(feeds))

    def _get_program(self, feeds: Feeds) -> Any:
        """Return the program for the shapes of these feeds, and trace it if they are new."""
        specs = self._make_specs(feeds)
        if specs not in self._programs:
            self._programs[specs] = self._trace_program(specs)
        return self._programs[specs]

    def _trace_program(self, specs: Sequence[Any]) -> Any:
        """Trace the program, which takes a learning rate in training, and feeds of these specs."""
        compute = self._compute_loss_and_gradients if self._trains else self._compute_loss
        if self.uses_xla:
            compute = tf.function(compute, jit_compile=True, autograph=False)
        if not self._trains:
            return tf.function(compute, autograph=False).get_concrete_function(*specs)

        def compute_step(rate: Any, *feeds: Any) -> Any:
            loss, kept, gradients = compute(*feeds)
            computed = tf.nest.flatten((loss, kept, gradients), expand_composites=True)
            # A weight that is still to be read would be copied, not updated in place.
            with tf.control_dependencies([part for part in computed if part is not None]):
                self._update(gradients, rate)
            return loss, kept, gradients

        return tf.function(compute_step, autograph=False).get_concrete_function(RATE, *specs)

    def _compute(self, feeds: Feeds, *, rate: float) -> None:
        rates = (self._rates[rate],) if self._trains else ()
        with tf.device(self._device):
            self._loss, self._kept, self._gradients = self._get_program(feeds)(*rates, *feeds)

    def _compute_loss_and_gradients(self, *feeds: Any) -> tuple[Any, Any, Mapping[str, Any]]:
        """Return loss, tensors for outputs, and gradients (None for unused weights); traced."""
        self._n_traces += 1
        with tf.GradientTape() as tape:
            loss, kept = self._net.forward(self._weights, *feeds)
        return loss, kept, tape.gradient(loss, self._weights)

    def _compute_loss(self, *feeds: Any) -> tuple[Any, Any, Mapping[str, Any]]:
        """Return loss, tensors for outputs, and no gradients; traced."""
        self._n_traces += 1
        return *self._net.forward(self._weights, *feeds), {}

    def _update(self, gradients: Mapping[str, Any], rate: Any) -> None:
        """Make an in-place SGD step; in lookup tables it changes only the rows that were read."""
        for name, gradient in gradients.items():
            subtract(self._weights[name], gradient, rate)

    def result(self) -> Result:
        """Return loss, outputs and, in training, dense gradients of a run without a step."""
        gradients = {name: to_dense(g, self._weights[name]) for name, g in self._gradients.items()}
        outputs = self._net.outputs(self._weights, self._kept)
        arrays = {name: gradient.numpy() for name, gradient in gradients.items()}
        return Result(self.last_loss(), outputs.numpy(), arrays, self.counters())

    def parameters(self) -> Parameters:
        return {name: np.array(value) for name, value in self._weights.items()}

    def last_loss(self) -> float:
        return float(self._loss)

    def counters(self) -> Counters:
        """Return no counters, because TensorFlow does not count its work."""
        return Counters()

    def synchronize(self) -> None:
        if self._device == "/GPU:0":
            tf.test.experimental.sync_devices()

    def peak_memory_bytes(self) -> int | None:
        """Return the peak of CUDA memory; None on the CPU, where the process's peak counts."""
        if self._device == "/CPU:0":
            return None
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])

    def reset_peak_memory(self) -> None:
        if self._device != "/CPU:0":
            tf.config.experimental.reset_memory_stats("GPU:0")

    def versions(self) -> dict[str, str]:
        facts = {
            "tensorflow": str(tf.__version__),
            "tensorflow_onednn": "on" if _pywrap_util_port.IsMklEnabled() else "off",
            "tensorflow_xla": "on" if self.uses_xla else "off",
            "tensorflow_threads": str(tf.config.threading.get_intra_op_parallelism_threads()),
        }
        if self._device == "/GPU:0":
            facts["tensorflow_cuda"] = str(tf.sysconfig.get_build_info().get("cuda_version"))
        return facts


def set_up_process(settings: RunSettings) -> None:
    """Set threads, float32 matmuls and memory growth, which TensorFlow fixes once per process."""
    tf.config.threading.set_intra_op_parallelism_threads(settings.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[:1] if settings.device == "cuda" else [], "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)


def subtract(variable: Any, gradient: Any, rate: Any) -> None:
    """Compute variable -= rate * gradient in place; a gradient of None means zeros."""
    if isinstance(gradient, tf.IndexedSlices):
        variable.scatter_sub(tf.IndexedSlices(rate * gradient.values, gradient.indices))
    elif gradient is not None:
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)


def to_dense(gradient: Any, variable: Any) -> Any:
    """Return a gradient in the variable's shape; zeros if the variable was not used."""
    return tf.zeros_like(variable) if gradient is None else tf.convert_to_tensor(gradient)
