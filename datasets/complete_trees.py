"""Complete binary trees with random words: the workload of Tree-FC (Looks et al., ICLR 2017)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dynbatch.datasets.parts.drawing import Key, generate_corpus
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.values.arrays import IntArray, as_int_array, draw_uniforms
from dynbatch.harness.values.checked import Count, Seed
from dynbatch.harness.values.instances import Tree

NAME = "complete_trees"
N_CLASSES = 5


def load(
    split: str, root: Path | None, n_leaves: int = 256, n_instances: Count = 1024, seed: Seed = 0
) -> Corpus:
    """Generate trees of `n_leaves` leaves; word ids are uniform in [0, n_leaves), labels in 0-4.

    Raises:
        ConfigError: if n_leaves is not a power of two of at least 2.
    """
    if n_leaves < 2 or n_leaves & (n_leaves - 1):
        raise ConfigError(
            f"dataset.options.n_leaves={n_leaves} is not allowed: expected a power of two, at least"
            " 2"
        )
    left, right = _build_structure(n_leaves)
    is_leaf = left < 0

    def build(key: Key) -> Tree:
        numbers = draw_uniforms(3 * n_leaves - 1, *key)
        words = np.full(len(left), -1, dtype=np.int32)
        words[is_leaf] = (numbers[:n_leaves] * n_leaves).astype(np.int32)
        labels = (numbers[n_leaves:] * N_CLASSES).astype(np.int32)
        return Tree(words, labels, left, right)

    return generate_corpus(
        NAME,
        split,
        n_instances,
        build,
        {"words": n_leaves, "classes": N_CLASSES},
        f"complete binary trees of {n_leaves} leaves, generated as the benchmark defines",
        {"n_leaves": n_leaves, "n_instances": n_instances, "seed": seed},
        kind="tree",
        synthetic=False,
    )


def _build_structure(n_leaves: int) -> tuple[IntArray, IntArray]:
    """Return the children of all vertices in post-order: a half, its shifted copy, the root."""
    left = right = np.array([-1])
    while len(left) < 2 * n_leaves - 1:
        half = len(left)
        left = np.concatenate([left, np.where(left < 0, -1, left + half), [half - 1]])
        right = np.concatenate([right, np.where(right < 0, -1, right + half), [2 * half - 1]])
    return as_int_array(left), as_int_array(right)
