"""Sentence pairs from a seed with the length statistics of IWSLT'15 English to Vietnamese.

They replace the corpus if it is not available, and are labeled synthetic everywhere. The tables
below were measured on tst2012 (1,553 pairs; including marks 20.02 English words on average, 4 to
95, and 24.08 Vietnamese words, 4 to 124): quantiles of the English length; quantiles of the ratio
of the Vietnamese to the English length, without marks, by English length; fractions of all words
that are the most frequent ones. Words are drawn independently, from vocabularies as large as the
real ones. The training split has as many pairs as the published file has lines.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dynbatch.datasets.parts.drawing import Key, convert_to_ranks, draw_length, generate_corpus
from dynbatch.harness.contracts.corpus import Corpus
from dynbatch.harness.values.arrays import IntArray, as_int_array, draw_uniforms
from dynbatch.harness.values.checked import CountOrNone, Seed
from dynbatch.harness.values.instances import SentencePair

NAME = "iwslt15_synthetic"
N_INSTANCES = {"train": 133_317, "dev": 1553, "test": 1268}
N_SOURCE, N_TARGET = 17_191, 7709
BEGIN, END, N_MARKS = 1, 2, 3  # first rows: unknown words, begin, end

# Quantiles of the number of English words, including marks.
LENGTHS = (
    *(3.5, 7.5, 8.8, 9.9, 10.9, 12.0, 13.0, 14.1, 15.1, 16.1, 17.2, 18.5, 20.1, 21.7, 23.4, 25.2),
    *(27.6, 30.6, 34.3, 40.8, 49.5, 58.9, 65.7, 95.5),
)
# Deciles of the ratio of the Vietnamese to the English length, for up to SIZES English words
# (including marks).
SIZES = (7, 15, 31)
RATIOS = (
    (0.6, 0.8, 1.0, 1.2, 1.2, 1.25, 1.4, 1.6, 1.77, 2.0, 2.75),
    (0.5, 0.905, 1.0, 1.118, 1.167, 1.25, 1.333, 1.429, 1.545, 1.667, 2.625),
    (0.562, 0.933, 1.034, 1.095, 1.146, 1.2, 1.263, 1.333, 1.408, 1.502, 2.0),
    (0.706, 0.97, 1.028, 1.1, 1.152, 1.195, 1.237, 1.292, 1.344, 1.468, 1.852),
)
TENTHS = tuple(step / 10 for step in range(11))
# The n most frequent words, for n in RANKS, are these fractions of all words.
RANKS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
SOURCE_SHARES = (
    *(0, 0.0534, 0.1003, 0.1614, 0.2501, 0.3612, 0.4513, 0.5488, 0.6592, 0.7468, 0.8245, 0.8977),
    *(0.9603, 1),
)
TARGET_SHARES = (
    *(0, 0.0341, 0.0676, 0.1047, 0.1597, 0.2362, 0.3384, 0.4575, 0.5827, 0.7173, 0.8454, 0.9437),
    *(0.9945, 1),
)


def load(split: str, root: Path | None, seed: Seed = 0, vocab_modulo: CountOrNone = 0) -> Corpus:
    """Generate as many pairs as the real split has lines; each depends on seed, split and index."""

    def build(key: Key) -> SentencePair:
        n_source = draw_length(key, LENGTHS, least=4) - 2
        ratios = RATIOS[int(np.searchsorted(SIZES, n_source + 2))]
        quantile = draw_uniforms(2, *key, 0)[1]
        n_target = max(1, int(n_source * float(np.interp(quantile, TENTHS, ratios)) + 0.5))
        sides = (
            _convert_to_words(draw_uniforms(n_source, *key, 1), SOURCE_SHARES, N_SOURCE),
            _convert_to_words(draw_uniforms(n_target, *key, 2), TARGET_SHARES, N_TARGET),
        )
        return SentencePair(*(side % vocab_modulo if vocab_modulo else side for side in sides))

    return generate_corpus(
        NAME,
        split,
        N_INSTANCES[split],
        build,
        {"source_words": vocab_modulo or N_SOURCE, "target_words": vocab_modulo or N_TARGET},
        "generated from a seed with the length statistics of IWSLT'15 English-Vietnamese",
        {"seed": seed, "vocab_modulo": vocab_modulo},
        kind="sentence_pair",
    )


def _convert_to_words(numbers: object, shares: tuple[float, ...], n_rows: int) -> IntArray:
    """Convert uniform numbers to words, and add begin and end marks."""
    drawn = convert_to_ranks(numbers, shares, (*RANKS, n_rows - N_MARKS))
    return as_int_array([BEGIN, *(N_MARKS + drawn), END])
