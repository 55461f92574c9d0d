"""TensorFlow with sentences in a loop: a tf.while_loop over steps inside one tf.function."""

from __future__ import annotations

from systems.on_tensorflow.parts.sentences import PaddedLooped, Shrinking, Way
from systems.on_tensorflow.static import Adapter as StaticAdapter


class Adapter(StaticAdapter):
    """One trace for all mini-batches; where XLA compiles, one for every combination of shapes."""

    def _way(self) -> Way:
        options = self.options
        if options.layout == "padded":
            return PaddedLooped(options.buckets, options.round_up_to)
        return Shrinking(None)
