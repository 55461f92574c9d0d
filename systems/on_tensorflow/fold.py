"""TensorFlow Fold, re-implemented on TensorFlow 2: dynamic batching by depth in one while loop.

Other forms of the loop were slower.

Source: Looks et al., "Deep Learning with Dynamic Computation Graphs", ICLR 2017, and its release,
tensorflow_fold/loom/loom.py, `_construct_loom_layer` and its callers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import tensorflow as tf

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.system import Counters, RunSettings
from dynbatch.harness.machine.facts import list_usable_cpus
from dynbatch.harness.values.checked import CountOrNone
from dynbatch.systems.on_tensorflow.examples import Examples, Preprocessing, Workers
from dynbatch.systems.on_tensorflow.loom import Loom
from dynbatch.systems.on_tensorflow.runtime import Feeds, Network, TensorFlowSystem
from dynbatch.systems.on_tensorflow.weaver import finalize_weaving

_VECTOR = tf.TensorSpec([None], tf.int32)
PARALLEL_ITERATIONS = 10  # as in the release
Tensors = Mapping[str, Any]  # by type shape, or by name of a weight


class LoomNetwork(Network):
    """Base class of the models, which define the loom, its inputs and the loss.

    Attributes:
        output_shape: type shape of the loom's outputs.
    """

    output_shape: ClassVar[str]

    def __init__(self, model: Model) -> None:
        self.loom = self.make_loom(model)
        self.tables = self.loom.tables
        self._output = self.loom.number(self.output_shape)
        self.preprocessing = Preprocessing(model, self.tables, self._output)
        self._woven: Callable[[Sequence[Any]], Examples] = self.preprocessing.weave_examples
        sizes = tf.TensorSpec([None, self.tables.n_slots], tf.int32)
        self.signature = (_VECTOR, _VECTOR, sizes, _VECTOR, _VECTOR, _VECTOR, _VECTOR)

    @abstractmethod
    def make_loom(self, model: Model) -> Loom:
        """Build type shapes and ops."""

    @abstractmethod
    def make_inputs(self, weights: Tensors, words: Any) -> Tensors:
        """Return rows of the initial state, for the type shapes whose rows are not zeros.

        Args:
            weights: weights by name.
            words: ids of the vertices that have one, in the order of the graph.
        """

    @abstractmethod
    def loss(self, weights: Tensors, outputs: Any, labels: Any) -> Any:
        """Return the summed loss of the loom's outputs."""

    def set_workers(self, n_workers: int) -> None:
        """Set the number of processes that weave; 1 is this process."""
        if n_workers > 1:
            self._woven = Workers(self.preprocessing, n_workers).weave_examples

    def construct(self, instances: Sequence[Any]) -> Feeds:
        """Weave the examples, and return the feeds of `signature`."""
        examples = self._woven(instances)
        self.wiring = finalize_weaving(examples.weaving, self.tables, self._output)
        *wires, counts = self.wiring
        return *wires, counts[0, : self.tables.n_shapes], examples.words, examples.labels

    def forward(self, weights: Tensors, *feeds: Any) -> tuple[Any, Any]:
        """Return the loss and the loom's outputs; traced."""
        indices, starts, sizes, outputs, n_rows, words, labels = feeds
        rows = dict(self.make_inputs(weights, words))
        for number, (name, width) in enumerate(self.loom.type_shapes.items()):
            if name not in rows:
                rows[name] = tf.zeros((n_rows[number], width))
        states = compute_last_states(self.loom, weights, rows, indices, starts, sizes)
        loom_outputs = tf.gather(states[self.output_shape], outputs)
        return self.loss(weights, loom_outputs, labels), loom_outputs

    def count_work(self, n_passes: int) -> Counters:
        return self.wiring.count_work(self.tables, self._output, n_passes)


def compute_last_states(
    loom: Loom, weights: Tensors, rows: Tensors, indices: Any, starts: Any, sizes: Any
) -> Tensors:
    """Return the state of every type shape at max_depth, from the initial ones; traced.

    For indices, starts and sizes, see Wiring.
    """
    shapes = [tf.TensorShape([None, width]) for width in loom.type_shapes.values()]

    def run_layer(depth: Any, *states: Any) -> tuple[Any, ...]:
        wires = tf.split(indices[starts[depth] : starts[depth + 1]], sizes[depth], num=loom.n_slots)
        return depth + 1, *compute_next_states(loom, weights, states, wires)

    max_depth = tf.shape(sizes)[0]
    _, *last = tf.while_loop(
        lambda depth, *_: depth < max_depth,
        run_layer,
        (0, *(rows[name] for name in loom.type_shapes)),
        shape_invariants=(tf.TensorShape([]), *shapes),
        parallel_iterations=PARALLEL_ITERATIONS,
    )
    return dict(zip(loom.type_shapes, last, strict=True))


def compute_next_states(
    loom: Loom, weights: Tensors, states: Sequence[Any], wires: Sequence[Any]
) -> list[Any]:
    """Return the states of a depth, each the concatenation of all outputs of its type shape.

    Pass-throughs are ops like all others.

    Args:
        states: states of the previous depth, by type shape.
        wires: for each slot, the rows of the previous states that it gathers.
    """
    before = dict(zip(loom.type_shapes, states, strict=True))
    waiting = iter(wires)
    parts = {name: [tf.gather(state, next(waiting))] for name, state in before.items()}
    for op in loom.ops:
        arguments = [tf.gather(before[name], next(waiting)) for name in op.arguments]
        for name, output in zip(op.outputs, op.function(weights, *arguments), strict=True):
            parts[name].append(output)
    return [tf.concat(outputs, 0) if outputs[1:] else outputs[0] for outputs in parts.values()]


@dataclass(frozen=True, slots=True)
class FoldOptions:
    """Options of weaving.

    Attributes:
        workers: number of processes that weave examples; 1 is this process, 0 one per CPU.
    """

    workers: CountOrNone = 1


class Adapter(TensorFlowSystem):
    """Adapter that weaves a mini-batch (construct), then runs all its depths in one program."""

    option_type = FoldOptions
    networks = "dynbatch.systems.on_tensorflow.models:FOLD"
    _net: LoomNetwork

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._n_workers = self.options.workers or len(list_usable_cpus())

    def prepare(self, model: Model, weights: Weights) -> None:
        """Build the network, and start the workers."""
        super().prepare(model, weights)
        self._net.set_workers(self._n_workers)

    def load(self, instances: Sequence[Any]) -> None:
        super().load(list(instances))

    def counters(self) -> Counters:
        return self._net.count_work(2 if self._trains else 1)

    def effective_options(self) -> dict[str, str]:
        """Return the options with the actual number of workers."""
        return super().effective_options() | {"workers": str(self._n_workers)}
