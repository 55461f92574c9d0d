"""TensorFlow Fold, re-implemented on TensorFlow 2: dynamic batching by depth in one while loop.

Other ways to write the loop were slower (docs/systems.md).

Sources: Looks et al., "Deep Learning with Dynamic Computation Graphs", ICLR 2017, and its release,
tensorflow_fold/loom/loom.py, `_construct_loom_layer` and what calls it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import tensorflow as tf

from harness.contracts.model import Model, Weights
from harness.contracts.system import Counters, RunSettings
from harness.machine.facts import usable_cpus
from harness.values.checked import CountOrNone
from systems.on_tensorflow.examples import Examples, Preprocessing, Workers
from systems.on_tensorflow.loom import Loom
from systems.on_tensorflow.runtime import Feeds, Network, TensorFlowSystem
from systems.on_tensorflow.weaver import Wiring, finalized

_VECTOR = tf.TensorSpec([None], tf.int32)
PARALLEL_ITERATIONS = 10  # the original's
Tensors = Mapping[str, Any]  # by type shape, or by name of a weight


class LoomNetwork(Network):
    """Base of the models; each gives its loom, its inputs and its loss.

    output_shape: the type shape of what leaves the loom.
    """

    output_shape: ClassVar[str]

    def __init__(self, model: Model) -> None:
        self.loom = self.make_loom(model)
        self.tables = self.loom.tables
        self._output = self.loom.number(self.output_shape)
        self.preprocessing = Preprocessing(model, self.tables, self._output)
        self._woven: Callable[[Sequence[Any]], Examples] = self.preprocessing.woven
        sizes = tf.TensorSpec([None, self.tables.n_slots], tf.int32)
        self.signature = (_VECTOR, _VECTOR, sizes, _VECTOR, _VECTOR, _VECTOR, _VECTOR)

    @abstractmethod
    def make_loom(self, model: Model) -> Loom:
        """Type shapes and ops."""

    @abstractmethod
    def inputs(self, weights: Tensors, words: Any) -> Tensors:
        """Rows of the initial state, of the type shapes whose rows are not zeros.

        words: ids of the vertices that have one, in the order of the graph.
        """

    @abstractmethod
    def loss(self, weights: Tensors, outputs: Any, labels: Any) -> Any:
        """Summed loss of what left the loom."""

    def preprocess_with(self, n_workers: int) -> None:
        """Let so many processes weave; 1 is this one."""
        if n_workers > 1:
            self._woven = Workers(self.preprocessing, n_workers).woven

    def construct(self, instances: Sequence[Any]) -> Feeds:
        """Weave the examples; returns what the program reads, as `signature` says."""
        examples = self._woven(instances)
        self.wiring: Wiring = finalized(examples.weaving, self.tables, self._output)
        wiring = self.wiring
        n_rows = wiring.counts[0, : self.tables.n_shapes]
        wires = (wiring.indices, wiring.starts, wiring.sizes, wiring.outputs)
        return *wires, n_rows, examples.words, examples.labels

    def forward(self, weights: Tensors, *feeds: Any) -> tuple[Any, Any]:
        """Loss and what left the loom; traced."""
        indices, starts, sizes, outputs, n_rows, words, labels = feeds
        rows = dict(self.inputs(weights, words))
        for number, (name, width) in enumerate(self.loom.type_shapes.items()):
            if name not in rows:
                rows[name] = tf.zeros((n_rows[number], width))
        states = last_states(self.loom, weights, rows, indices, starts, sizes)
        found = tf.gather(states[self.output_shape], outputs)
        return self.loss(weights, found, labels), found

    def counters(self, n_passes: int) -> Counters:
        """Work of the mini-batch that was woven last."""
        return self.wiring.counters(self.tables, self._output, n_passes)


def last_states(
    loom: Loom, weights: Tensors, rows: Tensors, indices: Any, starts: Any, sizes: Any
) -> Tensors:
    """Return the state of every type shape at max_depth; traced.

    rows: initial states. indices, starts, sizes: see Wiring.
    """
    shapes = [tf.TensorShape([None, width]) for width in loom.type_shapes.values()]

    def layer(depth: Any, *states: Any) -> tuple[Any, ...]:
        wires = tf.split(indices[starts[depth] : starts[depth + 1]], sizes[depth], num=loom.n_slots)
        return depth + 1, *next_states(loom, weights, states, wires)

    max_depth = tf.shape(sizes)[0]
    _, *last = tf.while_loop(
        lambda depth, *_: depth < max_depth,
        layer,
        (0, *(rows[name] for name in loom.type_shapes)),
        shape_invariants=(tf.TensorShape([]), *shapes),
        parallel_iterations=PARALLEL_ITERATIONS,
    )
    return dict(zip(loom.type_shapes, last, strict=True))


def next_states(
    loom: Loom, weights: Tensors, states: Sequence[Any], wires: Sequence[Any]
) -> list[Any]:
    """States of a depth, each the concatenation of all outputs of its type shape.

    wires: which rows of the states before each slot takes; pass-throughs are ops like all others.
    """
    before = dict(zip(loom.type_shapes, states, strict=True))
    waiting = iter(wires)
    found = {name: [tf.gather(state, next(waiting))] for name, state in before.items()}
    for op in loom.ops:
        arguments = [tf.gather(before[name], next(waiting)) for name in op.arguments]
        for name, output in zip(op.outputs, op.function(weights, *arguments), strict=True):
            found[name].append(output)
    return [tf.concat(outputs, 0) if outputs[1:] else outputs[0] for outputs in found.values()]


@dataclass(frozen=True, slots=True)
class FoldOptions:
    """workers: processes that weave examples; 1: none but the own, 0: as many as there are CPUs."""

    workers: CountOrNone = 1


class Adapter(TensorFlowSystem):
    """Weaves a mini-batch (construct), then runs all its depths in one program."""

    option_type = FoldOptions
    networks = "systems.on_tensorflow.models:FOLD"
    _net: LoomNetwork

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._n_workers = self.options.workers or len(usable_cpus())

    def prepare(self, model: Model, weights: Weights) -> None:
        """Also start the workers."""
        super().prepare(model, weights)
        self._net.preprocess_with(self._n_workers)

    def load(self, instances: Sequence[Any]) -> None:
        super().load(list(instances))

    def counters(self) -> Counters:
        """What the wiring says."""
        return self._net.counters(2 if self._trains else 1)

    def in_force(self) -> dict[str, str]:
        """How many processes weave."""
        return super().in_force() | {"workers": str(self._n_workers)}
