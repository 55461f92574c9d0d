"""Var-LSTM language model in TensorFlow, sentences side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.contracts.model import Model
from harness.models.parts.lstm import layer_suffix
from harness.values.instances import Chain
from systems.on_tensorflow.parts.output_layer import logits, summed_loss
from systems.on_tensorflow.parts.sentences import Batch, Way, in_canonical_order
from systems.on_tensorflow.runtime import Feeds, Network, Variables


class SideBySide(Network):
    """Parameters of harness.models.var_lstm."""

    def __init__(self, model: Model, way: Way) -> None:
        self.way = way
        self.suffixes = [layer_suffix(k) for k in range(1, model.options["layers"] + 1)]

    def construct(self, instances: Sequence[Chain]) -> Feeds:
        """Words and labels by row; nothing is read backwards."""
        return (self.way.batch(instances)._replace(against=(), in_against=()),)

    def specs(self, feeds: Feeds) -> tuple[Any, ...]:
        """As the way has it."""
        return (self.way.specs(feeds[0]),)

    def forward(self, weights: Variables, *feeds: Batch) -> tuple[Any, Any]:
        """Summed loss; what the output layer has read."""
        (batch,) = feeds
        layers = [(tuple(weights[f"{name}{k}"] for name in "WUb"), None) for k in self.suffixes]
        h = self.way.run(batch, batch.along, weights["embedding"], layers)
        read = self.way.read_along(batch, h)
        loss = summed_loss(read, weights["W_out"], weights["b_out"], batch.labels)
        return loss, (read, batch.labels, batch.back)

    def outputs(self, weights: Variables, kept: Any) -> Any:
        """Logits of all words."""
        read = in_canonical_order(*kept)
        return logits(read, weights["W_out"], weights["b_out"])


SIDE_BY_SIDE = {"var_lstm": SideBySide}
