"""Models of sentences in TensorFlow, with the sentences of a mini-batch in parallel.

Models with steps of several kinds (tokens and decisions, two languages) run without padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import tensorflow as tf

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.models.parts.lstm import format_layer_suffix
from dynbatch.harness.values.instances import Chain
from dynbatch.systems.on_tensorflow.layers import (
    StepOrder,
    compute_linear_cross_entropy,
    compute_logits,
)
from dynbatch.systems.on_tensorflow.runtime import Feeds, Network, Variables
from dynbatch.systems.on_tensorflow.sentences import (
    Batch,
    SentenceLayout,
    Shrinking,
    restore_order,
)
from dynbatch.systems.plans.sentences import Lengths, Stairs, plan_stairs


class SideBySide(Network):
    """Base class of the models of sentences, whose layers run along the words of an arrangement."""

    def __init__(self, model: Model, way: SentenceLayout) -> None:
        self.way = way
        self.suffixes = [format_layer_suffix(k) for k in range(1, model.options["layers"] + 1)]

    def construct(self, instances: Sequence[Chain]) -> Feeds:
        """Return words of both directions and labels, by row."""
        return (self.way.batch(instances),)

    def make_specs(self, feeds: Feeds) -> tuple[Any, ...]:
        return (self.way.make_specs(feeds[0]),)


class VarLSTM(SideBySide):
    """Parameters of dynbatch.harness.models.var_lstm."""

    def construct(self, instances: Sequence[Chain]) -> Feeds:
        """Return words and labels by row, without the backward direction."""
        return (self.way.batch(instances)._replace(against=(), in_against=()),)

    def forward(self, weights: Variables, *feeds: Batch) -> tuple[Any, Any]:
        (batch,) = feeds
        layers = [(tuple(weights[f"{name}{k}"] for name in "WUb"), None) for k in self.suffixes]
        h = self.way.run(batch, batch.along, weights["embedding"], layers)
        read = self.way.read_along(batch, h)
        loss = compute_linear_cross_entropy(read, weights["W_out"], weights["b_out"], batch.labels)
        return loss, (read, batch.labels, batch.back)

    def outputs(self, weights: Variables, kept: Any) -> Any:
        read = restore_order(*kept)
        return compute_logits(read, weights["W_out"], weights["b_out"])


class BiLSTM(SideBySide):
    """Parameters of dynbatch.harness.models.bilstm: one stack of layers per direction."""

    def forward(self, weights: Variables, *feeds: Batch) -> tuple[Any, Any]:
        (batch,) = feeds
        there = self._run(weights, batch, batch.along, "forward")
        back = self._run(weights, batch, batch.against, "backward")
        both = [self.way.read_along(batch, there), tf.gather(back, batch.in_against)]
        tags = tf.tanh(compute_logits(tf.concat(both, 1), weights["W_tag"], weights["b_tag"]))
        return compute_linear_cross_entropy(tags, weights["W_out"], None, batch.labels), (
            tags,
            batch.labels,
            batch.back,
        )

    def _run(self, weights: Variables, batch: Batch, words: Any, direction: str) -> Any:
        layers = []
        for k in self.suffixes:
            W, U, b, h_0, c_0 = (
                weights[f"{name}_{direction}{k}"] for name in ("W", "U", "b", "h_0", "c_0")
            )
            layers.append(((W, U, b), (h_0, c_0)))
        return self.way.run(batch, words, weights["embedding"], layers)

    def outputs(self, weights: Variables, kept: Any) -> Any:
        return compute_logits(restore_order(*kept), weights["W_out"], None)


class StepsNetwork(Network):
    """Base class of networks that run along stairs, with one feed of int32 arrays of any length.

    Attributes:
        unrolled: fields of the feed with the stairs whose steps are unrolled by tf_static.

    Raises:
        UnsupportedTrial: The layout is padded.
    """

    unrolled: ClassVar[Sequence[str]]

    def __init__(self, model: Model, way: SentenceLayout) -> None:
        if not isinstance(way, Shrinking):
            raise UnsupportedTrial(
                f"{model.name} has no padded layout in TensorFlow; use system=tf_static or"
                " system=tf_dynamic"
            )
        self.way = way

    def make_specs(self, feeds: Feeds) -> tuple[Any, ...]:
        """Return specs for any length, but a fixed number of steps along sentences if unrolled."""
        (feed,) = feeds
        free = tf.nest.map_structure(
            lambda ids: tf.TensorSpec([None, *ids.shape[1:]], tf.int32), feed
        )
        if self.way.unrolled is None:
            return (free,)
        for name in self.unrolled:
            stairs, fixed = getattr(free, name), len(getattr(feed, name).widths)
            free = free._replace(**{name: stairs._replace(widths=tf.TensorSpec([fixed], tf.int32))})
        return (free,)

    def lay_out(self, lengths: Lengths, name: str) -> Stairs:
        """Lay out sentences of these lengths, for a field of the feed."""
        unrolled = self.way.unrolled if name in self.unrolled else None
        stairs, _ = plan_stairs(lengths, unrolled or 1)
        return stairs

    def make_steps(self, stairs: Stairs) -> StepOrder:
        return self.way.make_steps(stairs.widths, stairs.before)


SIDE_BY_SIDE = {
    "var_lstm": VarLSTM,
    "bilstm": BiLSTM,
}
