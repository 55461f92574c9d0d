"""Examples woven, by this process or by workers, and what the program reads beside their weaving.

Source of the workers: the release of Looks et al., ICLR 2017,
tensorflow_fold/blocks/block_compiler.py, `build_loom_inputs`: chunks of at most 100 examples go to
as many processes as there are CPUs. No TensorFlow here: a process that only weaves does not load
it.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.contracts.model import Model
from harness.values.arrays import IntArray
from systems.on_tensorflow.loom import LoomTables
from systems.on_tensorflow.weaver import Weaving, merged, weave

MOST_IN_A_CHUNK = 100
_own: list[Preprocessing] = []  # of this worker, set as it starts


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


class Workers:
    """A pool of `n` processes, each started afresh: TensorFlow's threads do not survive a fork."""

    def __init__(self, preprocessing: Preprocessing, n: int) -> None:
        self.n = n
        self._preprocessing = preprocessing
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(n, context, _start, (preprocessing,))

    def woven(self, instances: Sequence[Any]) -> Examples:
        """Weave the examples, a chunk a worker."""
        size = min(MOST_IN_A_CHUNK, -(-len(instances) // self.n))
        chunks = [instances[k : k + size] for k in range(0, len(instances), size)]
        return self._preprocessing.joined(list(self._pool.map(_weave_chunk, chunks)))

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown()


def _start(preprocessing: Preprocessing) -> None:
    _own.append(preprocessing)


def _weave_chunk(instances: Sequence[Any]) -> Examples:
    return _own[0].woven(instances)
