"""A model as a loom: weaving a mini-batch, the loop over its depths, the loss of its outputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from harness.contracts.model import Model
from harness.contracts.system import Counters
from systems.on_tensorflow.loom.examples import Examples, Preprocessing
from systems.on_tensorflow.loom.loop import Tensors, last_states
from systems.on_tensorflow.loom.ops import Loom
from systems.on_tensorflow.loom.wiring import Wiring, finalized
from systems.on_tensorflow.loom.workers import Workers
from systems.on_tensorflow.runtime import Feeds, Network

_VECTOR = tf.TensorSpec([None], tf.int32)


class LoomNetwork(Network):
    """Base of the models in loom/models; each gives its loom, its inputs and its loss.

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
