"""TensorFlow with single trees: a while loop over the vertices of a tree, run once per tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from dynbatch.harness.contracts.system import Clock, RunSettings
from dynbatch.systems.on_tensorflow.runtime import Feeds, TensorFlowSystem


class Adapter(TensorFlowSystem):
    """Adapter that computes trees one after the other, and adds their losses and gradients.

    The update follows all trees, and is separable.
    """

    networks = "dynbatch.systems.on_tensorflow.models:ONE_TREE"

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        if self._trains:
            self.phases = ("construct", "update")

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Run forward, and in training also backward, tree by tree, and the SGD update."""
        super().run(clock, update=update)
        if not self._trains:
            return
        clock.mark("backward")
        if update:
            with tf.device(self._device):
                self._update(self._gradients, self._rates[self.settings.learning_rate])
            clock.mark("update")

    def _make_specs(self, feeds: Feeds) -> tuple[Any, ...]:
        """Return the specs of one tree, because all trees have the same."""
        return super()._make_specs(feeds[0])

    def _trace_program(self, specs: Sequence[Any]) -> Any:
        compute = self._compute_loss_and_gradients if self._trains else self._compute_loss
        return tf.function(compute, autograph=False).get_concrete_function(*specs)

    def _compute(self, feeds: Feeds, *, rate: float) -> None:
        """Run the program for every tree, which has a tuple of feeds; `run` makes the step."""
        kept, losses = [], []
        sums: dict[str, list[Any]] = {}
        program = self._get_program(feeds)
        with tf.device(self._device):
            for tree in feeds:
                loss, outputs, gradients = program(*tree)
                losses.append(loss)
                kept.append(outputs)
                for name, gradient in gradients.items():
                    sums.setdefault(name, []).append(gradient)
            self._loss, self._kept = tf.add_n(losses), tf.concat(kept, 0)
            self._gradients = {name: sum_gradients(parts) for name, parts in sums.items()}


def sum_gradients(gradients: list[Any]) -> Any:
    """Return the sum of a weight's gradients, which are either all sparse (rows) or all dense."""
    if not isinstance(gradients[0], tf.IndexedSlices):
        return tf.add_n(gradients)
    values = tf.concat([gradient.values for gradient in gradients], 0)
    indices = tf.concat([gradient.indices for gradient in gradients], 0)
    return tf.IndexedSlices(values, indices, gradients[0].dense_shape)
