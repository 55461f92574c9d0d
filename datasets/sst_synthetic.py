"""Trees from a seed with the shape statistics of the Stanford Sentiment Treebank.

They replace the treebank if it is not available, and are labeled synthetic everywhere. The tables
below were measured on its training split (8,544 trees, 163,563 leaves): quantiles of the number of
leaves; by size of a subtree, the probabilities that its left or its right child is one leaf, and
otherwise quantiles of the left child's fraction; frequencies of labels at leaves and at internal
vertices. Words follow Zipf's law, p(rank r) ~ 1 / (r + 1), which matches the treebank's counts at
ranks 1 to 5,000 within a third. Splits of different subtrees and labels of different vertices are
independent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dynbatch.datasets.parts.drawing import Key, generate_corpus
from dynbatch.datasets.parts.reading import TableRows
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.values.arrays import IntArray, draw_uniforms
from dynbatch.harness.values.checked import CountOrNone, Seed
from dynbatch.harness.values.instances import Tree

NAME = "sst_synthetic"
N_CLASSES = 5
N_INSTANCES = {"train": 8544, "dev": 1101, "test": 2210}
N_WORDS = 18_280  # of the training split, without the unknown word

# Quantiles of the number of leaves in steps of 2.5%.
LEAVES = (
    *(2.0, 4.5, 5.9, 6.9, 7.8, 8.8, 9.7, 10.3, 11.1, 11.8, 12.4, 13.2, 13.8, 14.6, 15.1, 15.7),
    *(16.3, 17.0, 17.7, 18.3, 18.9, 19.5, 20.1, 20.8, 21.5, 22.2, 22.8, 23.5, 24.2, 25.0, 25.8),
    *(26.7, 27.7, 28.6, 29.7, 31.1, 32.4, 34.0, 35.9, 39.7, 53.0),
)
# For subtrees of up to this many leaves: P(the left child is a leaf), P(only the right child is).
SINGLE_SIZES = (2, 3, 4, 5, 6, 7, 9, 12, 16, 21, 27, 35, 53)
LEFT_SINGLE = (1, 0.773, 0.699, 0.578, 0.533, 0.517, 0.503, 0.468, 0.424, 0.386, 0.322, 0.25, 0.206)
RIGHT_SINGLE = (0, 0.227, 0.17, 0.15, 0.166, 0.166, 0.162, 0.177, 0.191, 0.201, 0.232, 0.259, 0.265)
# If neither child is a leaf: quantiles in steps of 12.5% of the left child's size, scaled from 2 to
# n-2 leaves, for subtrees of up to 7 leaves and for larger ones.
SHARE_SMALL = (0, 0.097, 0.191, 0.287, 0.402, 0.517, 0.647, 0.809, 1)
SHARE_LARGE = (0, 0.047, 0.105, 0.177, 0.271, 0.384, 0.518, 0.69, 1)
# Cumulative frequencies of labels 0 to 4.
LEAF_LABELS = (0.0069, 0.0546, 0.9131, 0.9836, 1)
INTERNAL_LABELS = (0.0459, 0.2173, 0.7293, 0.94, 1)


def load(split: str, root: Path | None, seed: Seed = 0, vocab_modulo: CountOrNone = 0) -> Corpus:
    """Generate as many trees as the treebank's split has; each depends on seed, split and index."""
    rows = TableRows(N_WORDS, vocab_modulo)
    word_bounds = np.cumsum(1.0 / np.arange(2, N_WORDS + 2))
    word_bounds /= word_bounds[-1]

    def build(key: Key) -> Tree:
        left, right = _draw_shape(key)
        is_leaf = left < 0
        words = np.full(len(left), -1)
        n_leaves = (len(left) + 1) // 2
        drawn = np.searchsorted(word_bounds, draw_uniforms(n_leaves, *key, 1), side="right")
        words[is_leaf] = rows.find_rows(drawn)
        numbers = draw_uniforms(len(left), *key, 2)
        labels = np.where(
            is_leaf,
            np.searchsorted(LEAF_LABELS, numbers, side="right"),
            np.searchsorted(INTERNAL_LABELS, numbers, side="right"),
        )
        return Tree(words, labels, left, right)

    return generate_corpus(
        NAME,
        split,
        N_INSTANCES[split],
        build,
        {"words": rows.size, "classes": N_CLASSES},
        "generated from a seed with the shape statistics of the Stanford Sentiment Treebank",
        {"seed": seed, "vocab_modulo": vocab_modulo},
        kind="tree",
    )


def _draw_shape(key: Key) -> tuple[IntArray, IntArray]:
    """Draw the children of every vertex of one tree, in post-order.

    A subtree of n leaves has 2n-1 consecutive indices, of which the last is its root. Splits can
    therefore be drawn from the root down.
    """
    numbers = iter(draw_uniforms(2 * int(LEAVES[-1]), *key, 0).tolist())
    n_leaves = int(_interpolate_quantile(LEAVES, next(numbers)))
    left = np.full(2 * n_leaves - 1, -1, dtype=np.int32)
    right = left.copy()
    subtrees = [(0, n_leaves)]
    while subtrees:
        start, n = subtrees.pop()
        if n == 1:
            continue
        n_left = _count_left_leaves(n, next(numbers), next(numbers))
        middle, root = start + 2 * n_left - 1, start + 2 * n - 2
        left[root], right[root] = middle - 1, root - 1
        subtrees += [(start, n_left), (middle, n - n_left)]
    return left, right


def _count_left_leaves(n: int, choice: float, position: float) -> int:
    """Return the number of leaves below the left child of a subtree of n leaves.

    Args:
        choice: uniform number in [0, 1) that decides if a child is a leaf.
        position: uniform number in [0, 1) that decides the size otherwise.
    """
    size_class = bisect_left(SINGLE_SIZES, n)
    if choice < LEFT_SINGLE[size_class]:
        return 1
    if choice < LEFT_SINGLE[size_class] + RIGHT_SINGLE[size_class]:
        return n - 1
    share = _interpolate_quantile(SHARE_SMALL if n <= 7 else SHARE_LARGE, position)
    return min(n - 2, 2 + int(share * (n - 3)))


def _interpolate_quantile(table: Sequence[float], position: float) -> float:
    """Interpolate a table of equidistant quantiles linearly at `position` in [0, 1)."""
    offset = position * (len(table) - 1)
    index = int(offset)
    return table[index] + (offset - index) * (table[index + 1] - table[index])
