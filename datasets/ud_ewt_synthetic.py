"""Parsed sentences from a seed with the length statistics of UD English EWT.

They replace the treebank if it is not available, and are labeled synthetic everywhere. The tables
below were measured on the projective trees of its development part (1,970 sentences; 24,215 words,
12.29 per sentence, 1 to 75; 61.0% of the words are left of their head, at a mean distance of 3.13
words): quantiles of the length; positions of the head in a phrase; the division of the words on one
side of a head into phrases; fractions of all words that are the most frequent ones; frequencies of
parts of speech and relations. Words do not depend on the tree. The training split has as many
sentences as the real one, including those with nonprojective trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dynbatch.datasets.parts.drawing import Key, convert_to_ranks, draw_length, generate_corpus
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.values.arrays import as_int_array, draw_uniforms
from dynbatch.harness.values.checked import Seed
from dynbatch.harness.values.parsed import ParsedSentence

NAME = "ud_ewt_synthetic"
N_INSTANCES = {"train": 12_544, "dev": 2001, "test": 2077}
N_WORDS = 4532  # without the root and unknown words

# Quantiles of the number of words.
LENGTHS = (
    *(0.5, 1.5, 2.2, 2.9, 3.8, 4.8, 5.7, 6.7, 7.6, 8.5, 9.5, 10.8, 12.0, 13.3, 15.0, 16.9),
    *(19.3, 22.3, 26.1, 32.5, 37.7, 46.8, 50.6, 75.5),
)
# Rows are for 2-3, 4-7, 8-15 and more words. HEADS, for a phrase: P(its head is the first word),
# P(the last), and quartiles of the head's relative position otherwise. ON_THE_LEFT and
# ON_THE_RIGHT, for the words on one side of a head: P(the first word is a phrase), P(all words are
# one phrase), and quartiles of the first phrase's fraction otherwise.
HEADS = (
    (0.183, 0.737, (0.5, 0.5, 0.5, 0.5, 0.5)),
    (0.117, 0.251, (0.17, 0.25, 0.33, 0.5, 0.83)),
    (0.097, 0.025, (0.07, 0.14, 0.25, 0.43, 0.92)),
    (0.062, 0.003, (0.02, 0.07, 0.15, 0.31, 0.97)),
)
ON_THE_LEFT = (
    (0.86, 0.108, (0.5, 0.5, 0.5, 0.5, 0.5)),
    (0.659, 0.061, (0.17, 0.33, 0.5, 0.67, 0.83)),
    (0.369, 0.072, (0.08, 0.43, 0.71, 0.82, 0.93)),
    (0.258, 0.152, (0.05, 0.55, 0.82, 0.94, 0.97)),
)
ON_THE_RIGHT = (
    (0.203, 0.68, (0.5, 0.5, 0.5, 0.5, 0.5)),
    (0.131, 0.439, (0.17, 0.33, 0.67, 0.8, 0.83)),
    (0.114, 0.302, (0.07, 0.22, 0.64, 0.89, 0.93)),
    (0.115, 0.153, (0.02, 0.13, 0.35, 0.94, 0.98)),
)
QUARTERS = (0, 0.25, 0.5, 0.75, 1)
Shares = tuple[tuple[float, float, tuple[float, ...]], ...]
# The n most frequent words, for n in RANKS, are these fractions of all words.
RANKS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, N_WORDS)
SHARES = (
    *(0, 0.0463, 0.0851, 0.1395, 0.2143, 0.3009, 0.3851, 0.4808, 0.5667, 0.6438, 0.7244, 0.8079),
    *(0.8974, 0.982, 1),
)
# Cumulative frequencies of parts of speech and of relations, the most frequent first.
TAGS = (
    *(0.168, 0.2917, 0.3989, 0.4861, 0.567, 0.6425, 0.7177, 0.7918, 0.8539, 0.9024, 0.9334, 0.9589),
    *(0.9743, 0.9898, 0.9945, 0.9977, 1),
)
RELATIONS = (
    *(0.1231, 0.2045, 0.2845, 0.3614, 0.4333, 0.4866, 0.5391, 0.5873, 0.6268, 0.6632, 0.6994),
    *(0.7318, 0.763, 0.7925, 0.8219, 0.8471, 0.8627, 0.8776, 0.8919, 0.9032, 0.9128, 0.921, 0.9288),
    *(0.9359, 0.9425, 0.9489, 0.9553, 0.9616, 0.9667, 0.9711, 0.9753, 0.9793, 0.9825, 0.9855),
    *(0.9884, 0.9908, 0.9922, 0.9936, 0.9947, 0.9957, 0.9967, 0.9977, 0.9986, 0.9991, 0.9995),
    *(0.9998, 0.9999, 0.99995, 1),
)


def load(split: str, root: Path | None, seed: Seed = 0) -> Corpus:
    """Generate as many sentences as the real split has; each depends on seed, split and index."""

    def build(key: Key) -> ParsedSentence:
        n = draw_length(key, LENGTHS)
        words = convert_to_ranks(draw_uniforms(n, *key, 1), SHARES, RANKS)
        tags = np.searchsorted(TAGS, draw_uniforms(n, *key, 2), side="right")
        relations = np.searchsorted(RELATIONS, draw_uniforms(n, *key, 3), side="right")
        return ParsedSentence(
            words=as_int_array([*words, N_WORDS]),
            tags=as_int_array([*tags, len(TAGS)]),
            heads=as_int_array(_draw_heads(n, iter(draw_uniforms(4 * n, *key, 4).tolist()))),
            relations=as_int_array(relations),
        )

    return generate_corpus(
        NAME,
        split,
        N_INSTANCES[split],
        build,
        # Rows are added for the root, and for words, tags and relations unknown in training.
        {"words": N_WORDS + 2, "tags": len(TAGS) + 2, "relations": len(RELATIONS) + 1},
        "generated from a seed with the length statistics of UD English EWT",
        {"seed": seed},
        kind="parsed_sentence",
    )


def _draw_heads(n: int, numbers: Iterator[float]) -> list[int]:
    """Draw a projective tree over n words from the top down.

    Args:
        numbers: at least 4 n uniform numbers in [0, 1).
    """
    heads = [n] * n
    phrases = [(0, n, n)]  # first word, end, and head of the phrase's head
    while phrases:
        start, end, above = phrases.pop()
        top = start + _draw_position(end - start, HEADS, numbers)
        heads[top] = above
        for first, last, shares in ((start, top, ON_THE_LEFT), (top + 1, end, ON_THE_RIGHT)):
            while first < last:
                behind = first + 1 + _draw_position(last - first, shares, numbers)
                phrases.append((first, behind, top))
                first = behind
    return heads


def _draw_position(n: int, shares: Shares, numbers: Iterator[float]) -> int:
    """Draw a position from 0 to n - 1: the first, the last, or one between them."""
    if n == 1:
        return 0
    first, last, between = shares[min(n.bit_length(), 5) - 2]
    drawn, position = next(numbers), next(numbers)
    if drawn < first:
        return 0
    if drawn < first + last or n == 2:
        return n - 1
    return min(n - 2, max(1, int(float(np.interp(position, QUARTERS, between)) * (n - 1) + 0.5)))
