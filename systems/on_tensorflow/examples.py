"""Examples woven by this process or by workers, with the other inputs of the program.

This module does not import TensorFlow, so worker processes do not load it.

Source: the release of Looks et al., ICLR 2017, tensorflow_fold/blocks/block_compiler.py,
`build_loom_inputs`: chunks of at most 100 examples are sent to as many processes as there are CPUs.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.arrays import IntArray
from dynbatch.systems.on_tensorflow.loom import LoomTables
from dynbatch.systems.on_tensorflow.weaver import Weaving, merge_weavings, weave

MAX_IN_A_CHUNK = 100
_own: list[Preprocessing] = []  # set when a worker starts


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Preprocessing of a model's examples.

    Attributes:
        tables: its loom.
        output_shape: type shape of the loom's outputs.
    """

    model: Model
    tables: LoomTables
    output_shape: int

    def weave_examples(self, instances: Sequence[Any]) -> Examples:
        mini_batch = self.model.mini_batch(instances)
        words, labels = mini_batch.pulls["word"], mini_batch.pulls["label"]
        weaving = weave(mini_batch, self.tables, self.output_shape)
        return Examples(weaving, words[words >= 0], labels[mini_batch.outputs])

    def join_parts(self, parts: Sequence[Examples]) -> Examples:
        """Join parts, with the same result as weaving all examples together."""
        return Examples(
            merge_weavings([part.weaving for part in parts], self.tables),
            np.concatenate([part.words for part in parts]),
            np.concatenate([part.labels for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class Examples:
    """Examples after weaving.

    Attributes:
        weaving: wiring of the examples.
        words: ids of the vertices that have one, in the order of the graph.
        labels: labels of the outputs.
    """

    weaving: Weaving
    words: IntArray
    labels: IntArray


class Workers:
    """Pool of `n` spawned processes, because TensorFlow's threads do not survive a fork."""

    def __init__(self, preprocessing: Preprocessing, n: int) -> None:
        self.n = n
        self._preprocessing = preprocessing
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(n, context, _start, (preprocessing,))

    def weave_examples(self, instances: Sequence[Any]) -> Examples:
        """Weave the examples, one chunk per worker."""
        size = min(MAX_IN_A_CHUNK, -(-len(instances) // self.n))
        chunks = [instances[k : k + size] for k in range(0, len(instances), size)]
        return self._preprocessing.join_parts(list(self._pool.map(_weave_chunk, chunks)))


def _start(preprocessing: Preprocessing) -> None:
    _own.append(preprocessing)


def _weave_chunk(instances: Sequence[Any]) -> Examples:
    return _own[0].weave_examples(instances)
