"""Processes that weave examples, as Fold's multiprocessing pool does; their results are merged.

Source: the release of Looks et al., ICLR 2017, tensorflow_fold/blocks/block_compiler.py,
`build_loom_inputs`: chunks of at most 100 examples go to as many processes as there are CPUs.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from systems.on_tensorflow.loom.examples import Examples, Preprocessing

MOST_IN_A_CHUNK = 100
_own: list[Preprocessing] = []  # of this worker, set as it starts


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
