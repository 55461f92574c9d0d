"""From examples to a weaving and what the program reads beside it; also run by workers.

No TensorFlow here: a process that only preprocesses need not load it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.contracts.model import Model
from harness.values.arrays import IntArray
from systems.on_tensorflow.loom.ops import LoomTables
from systems.on_tensorflow.loom.weaver import Weaving, weave
from systems.on_tensorflow.loom.wiring import merged


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How examples of a model are woven; output_shape: the type shape that leaves the loom."""

    model: Model
    tables: LoomTables
    output_shape: int

    def woven(self, instances: Sequence[Any]) -> Examples:
        """Weave the graph of these examples."""
        mini_batch = self.model.mini_batch(instances)
        words, labels = mini_batch.pulls["word"], mini_batch.pulls["label"]
        weaving = weave(mini_batch, self.tables, self.output_shape)
        return Examples(weaving, words[words >= 0], labels[mini_batch.outputs])

    def joined(self, parts: Sequence[Examples]) -> Examples:
        """The same as if all parts had been woven at once."""
        return Examples(
            merged([part.weaving for part in parts], self.tables),
            np.concatenate([part.words for part in parts]),
            np.concatenate([part.labels for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class Examples:
    """Some examples, woven.

    words: ids of the vertices that have one, in the order of the graph. labels: of the outputs.
    """

    weaving: Weaving
    words: IntArray
    labels: IntArray
